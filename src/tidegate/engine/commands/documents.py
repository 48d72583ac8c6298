"""Shared by the commands that read documents: the kinds of a source with their columns, and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidegate.core.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tidegate.engine.source_plugin import SourcePlugin
    from tidegate.settings import Settings
    from tidegate.storage.documents import DocumentStore
    from tidegate.storage.documents.export.columns import Column


def source_of(settings: Settings, source: str | None) -> tuple[str, SourcePlugin | None]:
    """Return the name of a source and its plug-in; the plug-in is None if it is not installed here."""
    from tidegate.engine.commands.collect import plugin_for

    try:
        plugin = plugin_for(settings, source)
    except InvalidArgument:
        return source or "", None
    return plugin.name, plugin


async def chosen_kinds(
    store: DocumentStore, kinds: Sequence[str], columns: Mapping[str, Sequence[Column]]
) -> Mapping[str, Sequence[Column]]:
    """The named kinds with their columns; without names, all kinds that are declared or stored.

    Raises `InvalidArgument` for a kind that is neither.
    """
    known = dict.fromkeys([*columns, *await store.kinds()])
    for kind in kinds:
        if kind not in known:
            raise InvalidArgument("kind", kind, f"no documents of this kind; known kinds: {', '.join(known) or 'none'}")
    if not known:
        raise InvalidArgument("source", store.source, "no documents were collected from this source")
    return {kind: columns.get(kind, ()) for kind in kinds or known}


@contextmanager
def progress_bars(*, is_shown: bool) -> Generator[Callable[[str, int, int], None]]:
    """Show one progress bar for each kind of document on standard error.

    The yielded function updates a bar. Its arguments are the kind, the number of finished documents and the total.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:16}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not is_shown, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(kind: str, done: int, total: int) -> None:
            if kind not in tasks:
                tasks[kind] = bars.add_task(kind, total=total)
            bars.update(tasks[kind], completed=done, total=total)

        yield show
