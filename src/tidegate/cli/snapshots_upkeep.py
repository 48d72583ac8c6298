"""`tidegate snapshots prefetch` and `tidegate snapshots history`: what is asked for by the clock, and what was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.snapshots_opening import parse_subject
from tidegate.cli.wording import clock, number, span
from tidegate.systems.snapshots.settings import SnapshotSettings

if TYPE_CHECKING:
    from rich.table import Table

    from tidegate.settings import Settings
    from tidegate.systems.snapshots.archive.entry import Entry
    from tidegate.systems.snapshots.prefetch.status import Census, PrefetchStatus
    from tidegate.systems.snapshots.subject import Subject

_SUBJECT = typer.Argument(help="Kind and key, such as character/4711.")
_JSON = typer.Option(False, "--json", help="Print JSON.")


class _Told(msgspec.Struct, frozen=True, rename="camel"):
    """An entry as it is printed."""

    version: int
    changed_at: datetime
    size: int
    is_archived: bool
    snapshot: msgspec.Raw


def prefetch(
    *,
    count: bool = typer.Option(False, "--count", help="Count all subjects by tier and change rate; takes its time."),
    as_json: bool = _JSON,
) -> None:
    """Show what is asked for by the clock: due now, spent of the day's budget, and the rates."""
    status = run(_status(load_settings(), counts_all=count))
    if as_json:
        typer.echo(msgspec.json.encode(status))
        return
    for line in _lines(status, datetime.now(UTC)):
        typer.echo(line)


def history(
    subject: str = _SUBJECT,
    *,
    limit: int = typer.Option(20, min=1, max=10_000, help="So many changes at most."),
    as_json: bool = typer.Option(False, "--json", help="Print each as a line of JSON, with the snapshot."),
) -> None:
    """Show what a subject was, newest first; what is old comes from the archive. Exit 1 where nothing is known.

    It is remembered where TIDEGATE_SNAPSHOTS__ARCHIVE__KEEP_HISTORY says so.
    """
    from tidegate.cli.tables import print_table

    settings = load_settings()
    entries = run(_history(settings, parse_subject(settings, subject), limit))
    if as_json:
        for entry in entries:
            typer.echo(msgspec.json.encode(_told(entry)))
    elif entries:
        print_table(_table(entries))
    else:
        typer.echo(f"nothing is known of what {subject} was{_why(settings)}")
    if not entries:
        raise typer.Exit(1)


def _why(settings: Settings) -> str:
    if settings.section(SnapshotSettings).archive.keep_history:
        return ""
    return ". No history is kept: set TIDEGATE_SNAPSHOTS__ARCHIVE__KEEP_HISTORY=true to have it from now on"


async def _status(settings: Settings, *, counts_all: bool) -> PrefetchStatus:
    from tidegate.connections import open_database
    from tidegate.systems.snapshots.configured_kinds import require_kinds
    from tidegate.systems.snapshots.prefetch.status import prefetch_status

    require_kinds(settings)
    async with open_database(settings) as database:
        return await database.read(prefetch_status, settings.section(SnapshotSettings).prefetch, counts_all)


async def _history(settings: Settings, subject: Subject, limit: int) -> list[Entry]:
    from tidegate.connections import open_database
    from tidegate.systems.snapshots.upkeep import history_of_snapshots

    async with open_database(settings) as database:
        return await history_of_snapshots(settings, database).of(subject, limit=limit)


def _lines(status: PrefetchStatus, now: datetime) -> list[str]:
    share = status.spent / status.budget if status.budget else 1.0
    renews = span((status.budget_renews_at - now).total_seconds())
    lines = [
        f"policy    {status.policy}" + ("" if status.enabled else ", switched off"),
        f"due now   {number(status.due_now)}",
        f"next due  {_moment(status.next_due_at, now)}",
        f"budget    {number(status.spent)} of {number(status.budget)} calls spent ({share:.0%}), new in {renews}",
        f"pace      {number(status.calls_per_second)} calls/s; the hour allows {number(status.target_per_second)}",
    ]
    if status.policy == "learned":
        price = "not found out yet" if status.price is None else f"{status.price:.4g} days of freshness"
        lines.append(f"price     {price}")
    return lines if status.census is None else [*lines, *_counted(status.census)]


def _counted(census: Census) -> list[str]:
    tiers = ", ".join(f"{number(count)} {tier}" for tier, count in census.tiers.items())
    rates = [f"  {name:<14}{number(count):>12}" for name, count in census.change_rates.items()]
    return [f"tiers     {tiers}", "changes a day", *rates]


def _moment(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "nothing is planned yet"
    late_s = (now - moment).total_seconds()
    return f"{clock(moment, now)}, {span(abs(late_s))} {'ago' if late_s > 0 else 'ahead'}"


def _table(entries: list[Entry]) -> Table:
    from rich.table import Table

    table = Table("changed", "version", "bytes", "kept in", box=None, pad_edge=False)
    for entry in entries:
        kept_in = "archive" if entry.is_archived else "database"
        table.add_row(f"{entry.changed_at:%Y-%m-%d %H:%M:%S} UTC", str(entry.version), number(entry.size), kept_in)
    return table


def _told(entry: Entry) -> _Told:
    return _Told(entry.version, entry.changed_at, entry.size, entry.is_archived, msgspec.Raw(entry.body))
