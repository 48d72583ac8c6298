"""`tidegate snapshots`: read, refresh and watch snapshots, earlier versions, and scheduled refreshes.

Registers the commands of dead letters and of Kafka topics too.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run, run_traced
from tidegate.cli.wording import clock, number, span
from tidegate.systems.snapshots.commands.dead_letters import dead
from tidegate.systems.snapshots.commands.kafka_topics import topics
from tidegate.systems.snapshots.commands.text import opened, parse_subject
from tidegate.systems.snapshots.settings import SnapshotSettings

if TYPE_CHECKING:
    from rich.table import Table

    from tidegate.primitives.coalescer import Outcome
    from tidegate.settings import Settings
    from tidegate.systems.snapshots.archive.history import HistoryEntry
    from tidegate.systems.snapshots.model import SnapshotSubject
    from tidegate.systems.snapshots.prefetch.queries import PrefetchStatus, SubjectCounts
    from tidegate.systems.snapshots.reads import SnapshotAnswer
    from tidegate.systems.snapshots.service import Snapshots
    from tidegate.systems.snapshots.store import RefreshStatus

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


_JSON = typer.Option(False, "--json", help="Print JSON.")


def prefetch(
    *,
    count: bool = typer.Option(
        False, "--count", help="Count subjects by tier and change rate; estimated from a sample on a large table."
    ),
    as_json: bool = _JSON,
) -> None:
    """Show scheduled refreshes: subjects due now, the daily budget, and the rates."""
    status = run(_status(load_settings(), counts_all=count))
    if as_json:
        typer.echo(msgspec.json.encode(status))
        return
    for line in _lines(status, datetime.now(UTC)):
        typer.echo(line)


async def _status(settings: Settings, *, counts_all: bool) -> PrefetchStatus:
    from tidegate.connections import open_database
    from tidegate.systems.snapshots.kinds import require_kinds
    from tidegate.systems.snapshots.prefetch.queries import prefetch_status

    require_kinds(settings)
    async with open_database(settings) as database:
        return await database.read(prefetch_status, settings.section(SnapshotSettings).prefetch, counts_all)


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
        price = "not known yet" if status.price is None else f"{status.price:.4g} days of freshness"
        lines.append(f"price     {price}")
    return lines if status.counts is None else [*lines, *_count_lines(status.counts)]


def _count_lines(counts: SubjectCounts) -> list[str]:
    """Return the numbers of subjects by tier and by change rate as lines of text."""
    tiers = ", ".join(f"{number(count)} {tier}" for tier, count in counts.tiers.items())
    rates = [f"  {name:<14}{number(count):>12}" for name, count in counts.change_rates.items()]
    basis = "" if counts.is_all else f", estimated from {number(counts.sampled)} of them"
    return [f"subjects  {number(counts.total)}{basis}", f"tiers     {tiers}", "changes a day", *rates]


def _moment(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "nothing is scheduled yet"
    late_s = (now - moment).total_seconds()
    return f"{clock(moment, now)}, {span(abs(late_s))} {'ago' if late_s > 0 else 'ahead'}"


app = typer.Typer(help="Read and refresh snapshots, and see what failed.", no_args_is_help=True)
app.add_typer(dead, name="dead")
app.command()(prefetch)
app.command()(history)
app.command()(topics)

_WAIT = typer.Option(0.0, min=0, max=3600, help="Seconds to wait for a queued refresh.")
_SNAPSHOT_AS_JSON = typer.Option(False, "--json", help="Print JSON with the snapshot, as the HTTP API does.")
_READ_EVERY_S = 60.0


class RefreshSituation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer is not fresh."""

    status: RefreshStatus | None = None
    has_workers: bool | None = None
    """None: unknown."""
    has_failed: bool = False
    """Whether the awaited refresh failed permanently."""


@app.command()
def get(subject: str = _SUBJECT, *, wait: float = _WAIT, as_json: bool = _SNAPSHOT_AS_JSON) -> None:
    """Show how fresh the snapshot of a subject is; --json prints the snapshot too.

    If it is too old, a refresh is queued for the workers. Exit 1 if there is no snapshot.
    """
    from tidegate.systems.snapshots.commands.text import refresh_lines, snapshot_line

    answer, situation = run(_get(load_settings(), subject, wait))
    if as_json:
        typer.echo(answer.encode())
    else:
        typer.echo(snapshot_line(subject, answer))
        for line in refresh_lines(answer, situation.status, has_workers=situation.has_workers):
            typer.echo(f"  {line}")
    if answer.body is None:
        raise typer.Exit(1)


@app.command()
def refresh(subject: str = _SUBJECT, *, wait: float = _WAIT, as_json: bool = _SNAPSHOT_AS_JSON) -> None:
    """Request a refresh of a subject, however fresh it is; with --wait, show the result.

    Exit 1 if the refresh failed, or is not done in time.
    """
    from tidegate.systems.snapshots.commands.text import NO_WORKER, outcome_name, snapshot_line, status_line

    settings = load_settings()
    outcome, answer, situation = run_traced("snapshots refresh", settings, _refresh(settings, subject, wait))
    if answer is not None:
        typer.echo(answer.encode() if as_json else snapshot_line(subject, answer))
        return
    if as_json:
        typer.echo(msgspec.json.encode({"outcome": outcome_name(outcome), "version": outcome.version}))
    else:
        late = f"; not done within {span(wait)}" if wait and not situation.has_failed else ""
        typer.echo(f"{subject}: {outcome_name(outcome).replace('_', ' ')}, version {outcome.version}{late}")
        if situation.status is not None:
            typer.echo(f"  {status_line(situation.status)}")
        if situation.has_workers is False:
            typer.echo(f"  {NO_WORKER}")
    if wait:
        raise typer.Exit(1)


@app.command()
def watch(subject: str = _SUBJECT, *, as_json: bool = _SNAPSHOT_AS_JSON) -> None:
    """Show a subject now and after each refresh, until interrupted."""
    run(_watch(load_settings(), subject, as_json=as_json))


async def _get(settings: Settings, text: str, wait_s: float) -> tuple[SnapshotAnswer, RefreshSituation]:
    from tidegate.systems.snapshots.reads import Freshness

    subject = parse_subject(settings, text)
    async with opened(settings) as snapshots:
        answer = await snapshots.reader.wait(subject.kind, subject.key, wait_s)
        return answer, RefreshSituation() if answer.freshness is Freshness.FRESH else await _situation(
            snapshots, subject
        )


async def _situation(snapshots: Snapshots, subject: SnapshotSubject) -> RefreshSituation:
    from tidegate.runtime.workforce import has_workers
    from tidegate.systems.snapshots.store import status_of

    return RefreshSituation(
        status=await snapshots.parts.database.read(status_of, subject),
        has_workers=await has_workers(snapshots.parts.membership, snapshots.recoverable),
    )


async def _refresh(
    settings: Settings, text: str, wait_s: float
) -> tuple[Outcome, SnapshotAnswer | None, RefreshSituation]:
    from tidegate.systems.snapshots.store import status_of

    subject = parse_subject(settings, text)
    async with opened(settings) as snapshots:
        reader, (kind, key) = snapshots.reader, (subject.kind, subject.key)
        # Watch before the request: the result may be announced before the first read.
        async with snapshots.feed.watch([reader.subject(kind, key).id]) as changes:
            # A failure of an earlier refresh has a status already. Only a status that differs from it ends the wait.
            before = await snapshots.parts.database.read(status_of, subject)
            outcome = await snapshots.refresh(kind, key)
            deadline = asyncio.get_running_loop().time() + wait_s
            while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
                answer = await reader.read(kind, key)
                if answer.kept.version >= outcome.version:
                    return outcome, answer, RefreshSituation()
                status = await snapshots.parts.database.read(status_of, subject)
                if status is not None and status.has_failed and status != before:
                    return outcome, None, RefreshSituation(status=status, has_failed=True)
                await changes.wait(left_s)
            return outcome, None, await _situation(snapshots, subject)


async def _watch(settings: Settings, text: str, *, as_json: bool) -> None:
    from tidegate.systems.snapshots.commands.text import snapshot_line

    subject = parse_subject(settings, text)
    async with opened(settings) as snapshots:
        shown = None
        async with snapshots.feed.watch([snapshots.reader.subject(subject.kind, subject.key).id]) as changes:
            while True:
                answer = await snapshots.reader.read(subject.kind, subject.key)
                if answer.is_news_after(shown):
                    shown = answer
                    typer.echo(answer.encode() if as_json else snapshot_line(text, answer))
                await changes.wait(_READ_EVERY_S)
