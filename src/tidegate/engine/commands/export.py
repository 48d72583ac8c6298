"""`tidegate export`: write collected documents to files."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.engine.commands.collect import SOURCE
from tidegate.engine.commands.documents import chosen_kinds, progress_bars, source_of
from tidegate.storage.documents.export.formats import Format, installed_formats, require_format

if TYPE_CHECKING:
    from tidegate.core.clock import Clock
    from tidegate.settings import Settings
    from tidegate.storage.documents import DocumentStore
    from tidegate.storage.documents.export.columns import Column
    from tidegate.storage.documents.export.exporter import ExportProgress, ExportRequest
    from tidegate.storage.documents.export.folder import Manifest

_STANDARD_OUTPUT = "-"


def _formats() -> str:
    """The help text of the option, with the packages that missing formats need."""
    missing = [each for each in Format if each not in installed_formats()]
    needs = "".join(f' {each} needs: pip install "tidegate[{each}]".' for each in missing)
    return f"Format of the files.{needs}"


def export(
    *,
    format: Format = typer.Option(help=_formats()),  # noqa: A002 - the option's name
    output: Path = typer.Option(
        help="Folder for the files; it is created if necessary. With - documents are written to standard output: as "
        "jsonl, or one kind as csv."
    ),
    source: str | None = SOURCE,
    kind: list[str] = typer.Option([], help="Only this kind, such as issue. Can be repeated."),
    login: list[str] = typer.Option([], help="Only documents that were collected for this user. Can be repeated."),
    with_gone: bool = typer.Option(False, "--with-gone", help="Include documents that no longer exist upstream."),
    no_body: bool = typer.Option(False, "--no-body", help="Omit the column with the whole document as JSON."),
    force: bool = typer.Option(False, "--force", help="Write into a folder that contains other files."),
    no_progress: bool = typer.Option(False, "--no-progress", help="Print nothing until the end."),
    as_json: bool = typer.Option(False, "--json", help="Print the manifest as JSON."),
) -> None:
    """Write collected documents to files: one per kind, and a manifest with counts and checksums.

    Files are renamed to their final names after all of them are complete. An existing export is replaced. On standard
    output there is no manifest, and output that was written before an error is not undone.
    """
    from tidegate.storage.documents.export.exporter import ExportRequest

    if as_json and str(output) == _STANDARD_OUTPUT:
        raise typer.BadParameter("--json cannot be combined with --output -, which writes documents to standard output")
    settings = load_settings()
    name, plugin = source_of(settings, source)
    is_shown = sys.stderr.isatty() and not (no_progress or as_json)
    require_format(format, with_body=not no_body)

    def request(kinds: Mapping[str, Sequence[Column]]) -> ExportRequest:
        owners = [each if plugin is None else plugin.owner(each) for each in login] if login else None
        return ExportRequest(format=format, kinds=kinds, owners=owners, with_gone=with_gone, with_body=not no_body)

    order = _Order(name, {} if plugin is None else plugin.columns, tuple(dict.fromkeys(kind)), request)
    why = _empty_reason(settings, is_narrowed=bool(login or kind))
    with progress_bars(is_shown=is_shown) as show:

        def on_progress(progress: ExportProgress) -> None:
            show(progress.kind, progress.written, progress.total)

        if str(output) != _STANDARD_OUTPUT:
            manifest = run(_export(settings, output, order, force=force, on_progress=on_progress))
            _print_manifest(manifest, output, why, as_json=as_json)
            return
        written = run(_print(settings, order, on_progress))
    if not no_progress:
        typer.echo(f"{written:,} documents" if written else f"Nothing to export: {why}", err=True)


class _Order(NamedTuple):
    """What to export. The kinds are resolved after the documents are open."""

    source: str
    columns: Mapping[str, Sequence[Column]]
    kinds: Sequence[str]
    request: Callable[[Mapping[str, Sequence[Column]]], ExportRequest]


async def _export(
    settings: Settings, folder: Path, order: _Order, *, force: bool, on_progress: Callable[[ExportProgress], None]
) -> Manifest:
    from tidegate.storage.documents.export.exporter import export as write_export

    async with _documents(settings, order) as (documents, clock, request):
        return await write_export(documents, folder, request, force=force, clock=clock, on_progress=on_progress)


async def _print(settings: Settings, order: _Order, on_progress: Callable[[ExportProgress], None]) -> int:
    from tidegate.storage.documents.export.exporter import export_stream

    async with _documents(settings, order) as (documents, _, request):
        return await export_stream(documents, typer.get_binary_stream("stdout"), request, on_progress=on_progress)


@asynccontextmanager
async def _documents(settings: Settings, order: _Order) -> AsyncGenerator[tuple[DocumentStore, Clock, ExportRequest]]:
    """Open the documents of a source; yields them with the clock of their database and the request."""
    from tidegate.connections import open_database
    from tidegate.storage.documents import open_documents

    async with open_database(settings) as database:
        documents = await open_documents(settings.documents, database)
        try:
            store = documents.of(order.source)
            kinds = await chosen_kinds(store, order.kinds, order.columns)
            yield store, database.clock, order.request(kinds)
        finally:
            await documents.close()


def _empty_reason(settings: Settings, *, is_narrowed: bool) -> str:
    place = f"in {settings.data_dir}" if settings.database_url is None else "in this database"
    if is_narrowed:
        return f"no document {place} matches --login and --kind. List runs with: tidegate runs list"
    return f"there are no documents {place}. Collect some first: tidegate collect LOGIN"


def _print_manifest(manifest: Manifest, folder: Path, why: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(manifest))
        return
    for each in manifest.files:
        misfits = sum(each.misfits.values())
        note = f"   {misfits:,} values did not fit their column and are only in the body" if misfits else ""
        typer.echo(f"{each.file:24} {each.documents:>12,} documents {_size(each.bytes):>10}{note}")
    total = _size(sum(each.bytes for each in manifest.files))
    typer.echo(f"{manifest.documents:,} documents, {total}, in {folder}")
    if not manifest.documents:
        typer.echo(f"Nothing to export: {why}")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
