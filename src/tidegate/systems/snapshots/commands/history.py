"""`tidegate snapshots history`: earlier versions of a subject, from the database and the archive."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import number
from tidegate.systems.snapshots.commands.opening import parse_subject
from tidegate.systems.snapshots.settings import SnapshotSettings

if TYPE_CHECKING:
    from rich.table import Table

    from tidegate.settings import Settings
    from tidegate.systems.snapshots.archive.history import HistoryEntry
    from tidegate.systems.snapshots.model import SnapshotSubject

_SUBJECT = typer.Argument(help="Kind and key, such as character/4711.")


class _PrintedEntry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry as `--json` prints it."""

    version: int
    changed_at: datetime
    size: int
    is_archived: bool
    snapshot: msgspec.Raw


def history(
    subject: str = _SUBJECT,
    *,
    limit: int = typer.Option(20, min=1, max=10_000, help="Maximum number of changes."),
    as_json: bool = typer.Option(False, "--json", help="Print one line of JSON for each, with the snapshot."),
) -> None:
    """Show earlier versions of a subject, newest first, from database and archive. Exit 1 if there are none.

    History is kept if TIDEGATE_SNAPSHOTS__ARCHIVE__KEEP_HISTORY is true.
    """
    from tidegate.cli.tables import print_table

    settings = load_settings()
    entries = run(_history(settings, parse_subject(settings, subject), limit))
    if as_json:
        for entry in entries:
            typer.echo(msgspec.json.encode(_printed(entry)))
    elif entries:
        print_table(_table(entries))
    else:
        typer.echo(f"no history of {subject}{_why_none(settings)}")
    if not entries:
        raise typer.Exit(1)


def _why_none(settings: Settings) -> str:
    if settings.section(SnapshotSettings).archive.keep_history:
        return ""
    return ". History is not kept: set TIDEGATE_SNAPSHOTS__ARCHIVE__KEEP_HISTORY=true to keep it from now on"


async def _history(settings: Settings, subject: SnapshotSubject, limit: int) -> list[HistoryEntry]:
    from tidegate.connections import open_database
    from tidegate.systems.snapshots.archive.opening import history_of_snapshots

    async with open_database(settings) as database:
        return await history_of_snapshots(settings, database).of(subject, limit=limit)


def _table(entries: list[HistoryEntry]) -> Table:
    from rich.table import Table

    table = Table("changed", "version", "bytes", "kept in", box=None, pad_edge=False)
    for entry in entries:
        kept_in = "archive" if entry.is_archived else "database"
        table.add_row(f"{entry.changed_at:%Y-%m-%d %H:%M:%S} UTC", str(entry.version), number(entry.size), kept_in)
    return table


def _printed(entry: HistoryEntry) -> _PrintedEntry:
    return _PrintedEntry(entry.version, entry.changed_at, entry.size, entry.is_archived, msgspec.Raw(entry.body))
