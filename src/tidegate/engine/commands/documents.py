"""What the commands that read documents share: the kinds of a source with their columns, and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidegate.core.errors import InvalidArgument
from tidegate.systems.github.kinds import COLUMNS

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tidegate.settings import Settings
    from tidegate.storage.documents import DocumentStore
    from tidegate.storage.documents.export import Column

GITHUB = "github"


def declared_columns(settings: Settings, source: str) -> Mapping[str, Sequence[Column]]:
    """The columns that a source declares for its kinds of documents; none where this process does not know it."""
    from tidegate.engine.registry import columns_of, load_sources

    if source == GITHUB:
        return COLUMNS
    known = load_sources(settings.sources)
    return columns_of(known[source]) if source in known else {}


async def chosen_kinds(
    store: DocumentStore, kinds: Sequence[str], columns: Mapping[str, Sequence[Column]]
) -> Mapping[str, Sequence[Column]]:
    """The named kinds with their columns; without names, all kinds that are declared or stored.

    Raises `InvalidArgument` for a kind that is neither.
    """
    known = dict.fromkeys([*columns, *await store.kinds()])
    for kind in kinds:
        if kind not in known:
            raise InvalidArgument("kind", kind, f"there are no such documents; known are {', '.join(known) or 'none'}")
    if not known:
        raise InvalidArgument("source", store.source, "nothing was collected from a source of this name")
    return {kind: columns.get(kind, ()) for kind in kinds or known}


@contextmanager
def progress_bars(*, shows: bool) -> Generator[Callable[[str, int, int], None]]:
    """Show one bar for each kind on standard error; the function takes a kind, a count and a total."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:16}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shows, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(kind: str, done: int, total: int) -> None:
            if kind not in tasks:
                tasks[kind] = bars.add_task(kind, total=total)
            bars.update(tasks[kind], completed=done, total=total)

        yield show
