"""The open GitHub source of a process, with its routes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate.engine.collection import open_source
from tidegate.engine.source_cell import SourceCell
from tidegate.engine.system import OpenSource
from tidegate.settings import Settings
from tidegate.system import Api, HttpContext
from tidegate.systems.github.settings import NAME
from tidegate.systems.github.statistics import Statistics


class OpenGithub(OpenSource):
    """The open GitHub source: its cell, and the routes of its statistics."""

    def __init__(self, cell: SourceCell) -> None:
        super().__init__(cell)
        self.cell, self.statistics = cell, cell.parts.get(Statistics)

    def api(self, http: HttpContext) -> Api:
        """The HTTP routes that show statistics of users."""
        del http
        from tidegate.systems.github.api import StatisticsRoutes

        return Api(routes=StatisticsRoutes(self.statistics).routes())


@asynccontextmanager
async def open_github(
    settings: Settings, *, token: str | None = None, needs_credential: bool = True
) -> AsyncGenerator[SourceCell]:
    """Open only the collection from GitHub, for the length of a block; see `open_source`."""
    async with open_source(settings, NAME, token=token, needs_credential=needs_credential) as collection:
        yield collection.cell(NAME)
