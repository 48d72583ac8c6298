"""`tidegate sync`: keep typed tables of collected documents up to date in a destination."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run, tune_gc
from tidegate.engine.commands.collect import SOURCE
from tidegate.engine.commands.documents import chosen_kinds, progress_bars, source_of

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.storage.documents.sync.destination import DestinationAddress
    from tidegate.storage.documents.sync.synchronizer import SyncProgress, SyncReport


def sync(
    *,
    to: str = typer.Option(
        metavar="DESTINATION", help="duckdb:FILE, postgresql://USER@HOST/DATABASE, parquet:DIR or jsonl:DIR."
    ),
    source: str | None = SOURCE,
    kind: list[str] = typer.Option([], help="Only this kind. Can be repeated."),
    full: bool = typer.Option(False, "--full", help="Write every row again, and remove rows without a document."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Count the documents to read and compare; write nothing."),
    no_progress: bool = typer.Option(False, "--no-progress", help="Print nothing until the end."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Update typed tables in DuckDB, PostgreSQL, Parquet or JSON Lines, one table per kind.

    Only rows of changed documents are written. An interrupted sync is continued by the next one.
    """
    from tidegate.storage.documents.sync.destination import parse_destination

    address = parse_destination(to)
    settings = load_settings()
    is_shown = sys.stderr.isatty() and not (no_progress or as_json)
    with progress_bars(is_shown=is_shown) as show:
        kinds = tuple(dict.fromkeys(kind))

        def on_progress(progress: SyncProgress) -> None:
            show(progress.kind, progress.read, progress.total)

        tune_gc()
        report = run(_sync(settings, address, source, kinds, full=full, dry_run=dry_run, on_progress=on_progress))
    typer.echo(msgspec.json.encode(report) if as_json else _summary(report))


async def _sync(
    settings: Settings,
    address: DestinationAddress,
    source: str | None,
    kinds: Sequence[str],
    *,
    full: bool,
    dry_run: bool,
    on_progress: Callable[[SyncProgress], None],
) -> SyncReport:
    """Synchronise the documents of a source to the destination."""
    from tidegate.connections import open_database
    from tidegate.storage.documents import open_documents
    from tidegate.storage.documents.sync.synchronizer import SyncOrder
    from tidegate.storage.documents.sync.synchronizer import sync as bring_up_to_date

    async with open_database(settings) as database:
        documents = await open_documents(settings.documents, database)
        try:
            name, plugin = source_of(settings, source)
            store = documents.of(name)
            chosen = await chosen_kinds(store, kinds, {} if plugin is None else plugin.columns)
            order = SyncOrder(to=address, kinds=chosen, full=full, dry_run=dry_run)
            return await bring_up_to_date(store, order, on_progress=on_progress)
        finally:
            await documents.close()


def _summary(report: SyncReport) -> str:
    verb = "to compare" if report.dry_run else "written"
    lines: list[str] = []
    for table in report.tables:
        misfits = sum(table.misfits.values())
        notes = [
            f"{table.removed:,} removed" if table.removed else "",
            f"{misfits:,} values did not fit their column and were left empty" if misfits else "",
            f"{table.unreadable:,} documents are not valid JSON" if table.unreadable else "",
        ]
        note = "; ".join(each for each in notes if each)
        lines.append(
            f"{table.kind:24} {table.documents:>12,} documents {table.written:>12,} {verb}{note and '   ' + note}"
        )
    lines.append(f"{report.written:,} rows {verb}, {report.to}")
    return "\n".join(lines)
