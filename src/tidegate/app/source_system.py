"""Declares the sources of the setting `sources` to the application."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Context, OpenSystem, System

if TYPE_CHECKING:
    from tidegate.app.sources import SourceCollection
    from tidegate.runtime.service import Service
    from tidegate.settings import Settings


class OpenSources(OpenSystem):
    """The configured sources, open: a working process is a member of the cell of each."""

    def __init__(self, collection: "SourceCollection | None") -> None:
        self.collection = collection

    def workers(self) -> "Mapping[str, Service]":
        """One service for each source."""
        from functools import partial

        from tidegate.app.cells import CellService

        cells = {} if self.collection is None else self.collection.cells
        return {f"source {name}": CellService(partial(cell.process, works=True)) for name, cell in cells.items()}


class SourcesSystem(System):
    """Sources of the installation's own."""

    name = "sources"
    requires = ("collection",)

    def checks(self, settings: "Settings") -> Sequence[Callable[[], object]]:
        """Whether every configured source can be loaded."""
        from tidegate.app.cells import SHARED_SOURCES
        from tidegate.engine.registry import load_sources

        return [lambda: load_sources(settings.sources, taken=SHARED_SOURCES)]

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """The sources, for the length of a block; without any, nothing is opened."""
        from tidegate.app.cells import SHARED_SOURCES
        from tidegate.engine.registry import load_sources

        if not load_sources(context.settings.sources, taken=SHARED_SOURCES):
            yield OpenSources(None)
            return
        from tidegate.app.sources import open_configured

        async with open_configured(context) as collection:
            context.share(collection)
            yield OpenSources(collection)
