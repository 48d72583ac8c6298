"""`tidegate snapshots`: read, refresh and watch snapshots. The other commands are beside this module."""

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
_WAIT = typer.Option(0.0, min=0, max=3600, help="Wait so many seconds for a refresh that is queued.")
_JSON = typer.Option(False, "--json", help="Print JSON with the snapshot in it, as HTTP answers.")
_READ_AGAIN_S = 60.0


class RefreshSituation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer is not as good as it could be."""

    trouble: RefreshStatus | None = None
    has_workers: bool | None = None
    """None when it cannot be found out."""
    has_failed: bool = False
    """Whether the awaited refresh failed permanently."""


@app.command()
def get(subject: str = _SUBJECT, *, wait: float = _WAIT, as_json: bool = _JSON) -> None:
    """Show how fresh a subject's snapshot is; --json prints the snapshot too.

    Where it is too old, a refresh is queued, and a process at work does it. Exit 1 where there is no snapshot.
    """
    from tidegate.systems.snapshots.commands.text import answer_line, refresh_lines

    answer, situation = run(_get(load_settings(), subject, wait))
    if as_json:
        typer.echo(answer.encode())
    else:
        typer.echo(answer_line(subject, answer))
        for line in refresh_lines(answer, situation.trouble, has_workers=situation.has_workers):
            typer.echo(f"  {line}")
    if answer.body is None:
        raise typer.Exit(1)


@app.command()
def refresh(subject: str = _SUBJECT, *, wait: float = _WAIT, as_json: bool = _JSON) -> None:
    """Have a subject refreshed, however fresh it is; with --wait, show it when that is done.

    Exit 1 where it failed, or is not done when the wait is over.
    """
    from tidegate.systems.snapshots.commands.text import NO_WORKER, answer_line, outcome_name, trouble_line

    settings = load_settings()
    outcome, answer, situation = run_traced("snapshots refresh", settings, _refresh(settings, subject, wait))
    if answer is not None:
        typer.echo(answer.encode() if as_json else answer_line(subject, answer))
        return
    if as_json:
        typer.echo(msgspec.json.encode({"outcome": outcome_name(outcome), "version": outcome.version}))
    else:
        late = f"; not done within {span(wait)}" if wait and not situation.has_failed else ""
        typer.echo(f"{subject}: {outcome_name(outcome).replace('_', ' ')}, version {outcome.version}{late}")
        if situation.trouble is not None:
            typer.echo(f"  {trouble_line(situation.trouble)}")
        if situation.has_workers is False:
            typer.echo(f"  {NO_WORKER}")
    if wait:
        raise typer.Exit(1)


@app.command()
def watch(subject: str = _SUBJECT, *, as_json: bool = _JSON) -> None:
    """Show a subject now, and again whenever it was refreshed, until interrupted."""
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
    from tidegate.systems.snapshots.store import trouble_of

    return RefreshSituation(
        trouble=await snapshots.parts.database.read(trouble_of, subject),
        has_workers=await has_workers(snapshots.parts.membership, snapshots.recoverable),
    )


async def _refresh(
    settings: Settings, text: str, wait_s: float
) -> tuple[Outcome, SnapshotAnswer | None, RefreshSituation]:
    from tidegate.systems.snapshots.store import trouble_of

    subject = parse_subject(settings, text)
    async with opened(settings) as snapshots:
        reader, (kind, key) = snapshots.reader, (subject.kind, subject.key)
        async with snapshots.news.watch([reader.subject(kind, key).id]) as news:
            before = await snapshots.parts.database.read(trouble_of, subject)
            outcome = await snapshots.refresh(kind, key)
            deadline = asyncio.get_running_loop().time() + wait_s
            while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
                answer = await reader.read(kind, key)
                if answer.kept.version >= outcome.version:
                    return outcome, answer, RefreshSituation()
                trouble = await snapshots.parts.database.read(trouble_of, subject)
                if trouble is not None and trouble.has_failed and trouble != before:
                    return outcome, None, RefreshSituation(trouble=trouble, has_failed=True)
                await news.news(left_s)
            return outcome, None, await _situation(snapshots, subject)


async def _watch(settings: Settings, text: str, *, as_json: bool) -> None:
    from tidegate.systems.snapshots.commands.text import answer_line

    subject = parse_subject(settings, text)
    async with opened(settings) as snapshots:
        shown = None
        async with snapshots.news.watch([snapshots.reader.subject(subject.kind, subject.key).id]) as news:
            while True:
                answer = await snapshots.reader.read(subject.kind, subject.key)
                if answer.is_news_after(shown):
                    shown = answer
                    typer.echo(answer.encode() if as_json else answer_line(text, answer))
                await news.news(_READ_AGAIN_S)
