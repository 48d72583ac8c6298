"""`tidegate snapshots`: read, refresh and watch snapshots; registers the other commands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run, run_traced
from tidegate.cli.wording import span
from tidegate.systems.snapshots.commands.dead_letters import dead
from tidegate.systems.snapshots.commands.history import history
from tidegate.systems.snapshots.commands.kafka_topics import topics
from tidegate.systems.snapshots.commands.opening import opened, parse_subject
from tidegate.systems.snapshots.commands.prefetch import prefetch

if TYPE_CHECKING:
    from tidegate.primitives.coalescer import Outcome
    from tidegate.settings import Settings
    from tidegate.systems.snapshots.model import SnapshotSubject
    from tidegate.systems.snapshots.reads import SnapshotAnswer
    from tidegate.systems.snapshots.service import Snapshots
    from tidegate.systems.snapshots.store import RefreshStatus

app = typer.Typer(help="Read and refresh snapshots, and see what failed.", no_args_is_help=True)
app.add_typer(dead, name="dead")
app.command()(prefetch)
app.command()(history)
app.command()(topics)

_SUBJECT = typer.Argument(help="Kind and key, such as character/4711.")
_WAIT = typer.Option(0.0, min=0, max=3600, help="Seconds to wait for a queued refresh.")
_JSON = typer.Option(False, "--json", help="Print JSON with the snapshot, as the HTTP API does.")
_READ_EVERY_S = 60.0


class RefreshSituation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer is not fresh."""

    status: RefreshStatus | None = None
    has_workers: bool | None = None
    """None: unknown."""
    has_failed: bool = False
    """Whether the awaited refresh failed permanently."""


@app.command()
def get(subject: str = _SUBJECT, *, wait: float = _WAIT, as_json: bool = _JSON) -> None:
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
def refresh(subject: str = _SUBJECT, *, wait: float = _WAIT, as_json: bool = _JSON) -> None:
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
def watch(subject: str = _SUBJECT, *, as_json: bool = _JSON) -> None:
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
                await changes.news(left_s)
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
                await changes.news(_READ_EVERY_S)
