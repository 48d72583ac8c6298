"""`tidegate export`: what was collected, as files."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents.export.formats import Format, installed_formats
from tidegate.systems.github.columns import COLUMNS

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tidegate.core.clock import Clock
    from tidegate.settings import Settings
    from tidegate.storage.documents import DocumentStore
    from tidegate.storage.documents.export import Column, Manifest, Progress, Wish

_KNOWN = ", ".join(COLUMNS)
_STANDARD_OUTPUT = "-"


def _formats() -> str:
    """What is said of the formats: what a missing one needs, where one is missing."""
    missing = [each for each in Format if each not in installed_formats()]
    needs = "".join(f' {each} needs: pip install "tidegate[{each}]".' for each in missing)
    return f"How the files are written.{needs}"


def export(
    *,
    format: Format = typer.Option(help=_formats()),  # noqa: A002 - the option's name
    output: Path = typer.Option(
        help="The folder for the files; it is made if need be. With - documents go to standard output: as jsonl, or "
        "one kind as csv."
    ),
    kind: list[str] = typer.Option([], help=f"Only this kind; may be given several times. There are {_KNOWN}."),
    login: list[str] = typer.Option([], help="Only what was collected for this user; may be given several times."),
    with_gone: bool = typer.Option(False, "--with-gone", help="Also what is no longer there upstream."),
    no_body: bool = typer.Option(False, "--no-body", help="Leave out the column with the whole document as JSON."),
    force: bool = typer.Option(False, "--force", help="Write into a folder that has other things in it."),
    no_progress: bool = typer.Option(False, "--no-progress", help="Print nothing until the end."),
    as_json: bool = typer.Option(False, "--json", help="Print the manifest as JSON."),
) -> None:
    """Write what was collected as files: one for each kind of document, and a manifest with counts and checksums.

    The files get their names when all of them are whole. An export that is there already is replaced. On standard
    output there is no manifest, and what was written before an error stays written.
    """
    from tidegate.storage.documents.export import Wish

    if as_json and str(output) == _STANDARD_OUTPUT:
        raise typer.BadParameter("with --output - documents go to standard output, so the manifest cannot: omit --json")
    settings = load_settings()
    shows = sys.stderr.isatty() and not (no_progress or as_json)
    kinds = {name: COLUMNS.get(name, ()) for name in dict.fromkeys(kind or COLUMNS)}
    wish = Wish(
        format=format,
        kinds=kinds,
        owners=_owners(login, kinds) if login else None,
        with_gone=with_gone,
        with_body=not no_body,
    )
    why = _why_nothing(settings, is_narrowed=bool(login or kind))
    with _shown(shows=shows) as on_progress:
        if str(output) != _STANDARD_OUTPUT:
            manifest = run(_export(settings, output, wish, force=force, on_progress=on_progress))
            _tell(manifest, output, why, as_json=as_json)
            return
        written = run(_print(settings, wish, on_progress))
    if not no_progress:
        typer.echo(f"{written:,} documents" if written else f"There was nothing to export: {why}", err=True)


def _owners(logins: Sequence[str], kinds: Mapping[str, Sequence[Column]]) -> list[str]:
    """GitHub's users are known by small letters; what the users of other sources are called is theirs to say."""
    from tidegate.systems.github import parse_login

    return [parse_login(login) for login in logins] if kinds.keys() <= COLUMNS.keys() else list(logins)


async def _export(
    settings: Settings, folder: Path, wish: Wish, *, force: bool, on_progress: Callable[[Progress], None]
) -> Manifest:
    from tidegate.storage.documents.export import export as write_export

    async with _documents(settings, wish) as (documents, clock):
        return await write_export(documents, folder, wish, force=force, clock=clock, on_progress=on_progress)


async def _print(settings: Settings, wish: Wish, on_progress: Callable[[Progress], None]) -> int:
    from tidegate.storage.documents.export import export_stream

    async with _documents(settings, wish) as (documents, _):
        return await export_stream(documents, typer.get_binary_stream("stdout"), wish, on_progress=on_progress)


@asynccontextmanager
async def _documents(settings: Settings, wish: Wish) -> AsyncGenerator[tuple[DocumentStore, Clock]]:
    """The documents and the clock of their database, for the length of a block; refuses kinds that do not exist."""
    from tidegate.connections import open_database
    from tidegate.storage.documents import open_documents

    async with open_database(settings) as database:
        documents = await open_documents(settings.documents, database)
        try:
            await _require_known(documents, wish.kinds)
            yield documents, database.clock
        finally:
            await documents.close()


async def _require_known(documents: DocumentStore, kinds: Mapping[str, Sequence[Column]]) -> None:
    """A kind of a source of one's own has no columns here, but documents; one that has neither is a slip of the pen."""
    for kind in kinds:
        if kind not in COLUMNS and not await documents.count(kind, with_gone=True):
            raise InvalidArgument("kind", kind, f"there are no such documents; known are {', '.join(COLUMNS)}")


@contextmanager
def _shown(*, shows: bool) -> Generator[Callable[[Progress], None]]:
    """A bar for each kind, on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:16}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), disable=not shows, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: Progress) -> None:
            if progress.kind not in tasks:
                tasks[progress.kind] = bars.add_task(progress.kind, total=progress.total)
            bars.update(tasks[progress.kind], completed=progress.written, total=progress.total)

        yield show


def _why_nothing(settings: Settings, *, is_narrowed: bool) -> str:
    place = f"in {settings.data_dir}" if settings.database_url is None else "in this database"
    if is_narrowed:
        return f"nothing {place} fits --login and --kind. See what there is: tidegate runs list"
    return f"nothing was collected {place}. Collect something first: tidegate collect LOGIN"


def _tell(manifest: Manifest, folder: Path, why: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(manifest))
        return
    for each in manifest.files:
        misfits = sum(each.misfits.values())
        note = f"   {misfits:,} values did not fit their column, and stand in the body" if misfits else ""
        typer.echo(f"{each.file:24} {each.documents:>12,} documents {_size(each.bytes):>10}{note}")
    total = _size(sum(each.bytes for each in manifest.files))
    typer.echo(f"{manifest.documents:,} documents, {total}, in {folder}")
    if not manifest.documents:
        typer.echo(f"There was nothing to export: {why}")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
