"""`tidegate snapshots`: read snapshots, have them refreshed, and see to what failed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import typer

from tidegate.assembly import Snapshots, open_parts, open_snapshots
from tidegate.assembly.snapshots import configured_kinds
from tidegate.cli.running import load_settings, run
from tidegate.cli.snapshots_topics import topics
from tidegate.cli.snapshots_upkeep import history, prefetch
from tidegate.flow.coalescer import AlreadyProcessing, Outcome
from tidegate.kernel.errors import InvalidSettings, NotFound
from tidegate.kernel.priority import Priority
from tidegate.settings import Settings
from tidegate.snapshots.dead import DeadLetter
from tidegate.snapshots.event import Reason
from tidegate.snapshots.query import SnapshotAnswer
from tidegate.snapshots.requests import Wish

app = typer.Typer(help="Read snapshots, have them refreshed, and see what failed.", no_args_is_help=True)
dead = typer.Typer(help="Refreshes that failed for good: list, show, replay, drop.", no_args_is_help=True)
app.add_typer(dead, name="dead")
app.command()(prefetch)
app.command()(history)
app.command()(topics)

_SUBJECT = typer.Argument(help="Kind and key, such as character/4711.")
_LETTER = typer.Argument(help="The id of a dead letter.")
_WAIT = typer.Option(0.0, min=0, max=3600, help="Wait so many seconds for a refresh that is queued.")
_JSON = typer.Option(False, "--json", help="Print JSON, as HTTP answers.")
_LOOK_AGAIN_S = 60.0


@app.command()
def get(subject: str = _SUBJECT, *, wait: float = _WAIT, as_json: bool = _JSON) -> None:
    """Show what is known of a subject. Where that is too old, a refresh is queued; a process at work does it.

    Exit 1 where there is no snapshot.
    """
    answer = run(_get(load_settings(), subject, wait))
    _print(answer, as_json=as_json)
    if answer.body is None:
        raise typer.Exit(1)


@app.command()
def refresh(subject: str = _SUBJECT, *, wait: float = _WAIT, as_json: bool = _JSON) -> None:
    """Have a subject refreshed, however fresh it is; with --wait, show it when that is done."""
    outcome, answer = run(_refresh(load_settings(), subject, wait))
    if answer is not None:
        _print(answer, as_json=as_json)
        return
    told = _told(outcome)
    if as_json:
        typer.echo(msgspec.json.encode({"outcome": told, "version": outcome.version}))
    else:
        typer.echo(f"{subject}: {told.replace('_', ' ')}, version {outcome.version}")


@app.command()
def watch(subject: str = _SUBJECT, *, as_json: bool = _JSON) -> None:
    """Show a subject now, and again whenever it was refreshed, until interrupted."""
    run(_watch(load_settings(), subject, as_json=as_json))


@dead.command("list")
def list_(
    *,
    after: str | None = typer.Option(None, help="Only letters behind this one."),
    limit: int = typer.Option(50, min=1, max=500, help="So many at most."),
    as_json: bool = _JSON,
) -> None:
    """List refreshes that failed for good, the oldest first."""
    letters = run(_list(load_settings(), after, limit))
    for letter in letters:
        typer.echo(_as_json(letter) if as_json else _line(letter))
    if not letters and not as_json:
        typer.echo("no dead letters")


@dead.command()
def show(letter: str = _LETTER) -> None:
    """Show all about a dead letter, as JSON."""
    typer.echo(msgspec.json.format(_as_json(run(_show(load_settings(), letter))), indent=2))


@dead.command()
def replay(letter: str = _LETTER) -> None:
    """Ask for the refresh of a dead letter again, under a new version; the letter is gone then."""
    outcome = run(_replay(load_settings(), letter))
    typer.echo(f"{letter}: {_told(outcome).replace('_', ' ')}, version {outcome.version}")


@dead.command()
def drop(letter: str = _LETTER) -> None:
    """Give a dead letter up for good."""
    run(_drop(load_settings(), letter))
    typer.echo(f"{letter}: dropped")


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[Snapshots]:
    """The snapshots of this installation; raise `InvalidSettings` where it keeps none."""
    if not configured_kinds(settings):
        raise InvalidSettings(
            "this installation keeps no snapshots. Set TIDEGATE_SNAPSHOTS__GAME__URL; `tidegate settings` lists all"
        )
    async with open_parts(settings) as parts, open_snapshots(parts) as snapshots:
        yield snapshots


async def _get(settings: Settings, subject: str, wait_s: float) -> SnapshotAnswer:
    async with opened(settings) as snapshots:
        kind, _, key = subject.partition("/")
        return await snapshots.reader.wait(kind, key, wait_s)


async def _refresh(settings: Settings, subject: str, wait_s: float) -> tuple[Outcome, SnapshotAnswer | None]:
    async with opened(settings) as snapshots:
        reader, (kind, _, key) = snapshots.reader, subject.partition("/")
        wanted = reader.subject(kind, key)
        async with snapshots.news.watch([wanted.id]) as news:
            known = await reader.known(kind, key)
            outcome = await snapshots.requests.ask(
                Wish(
                    subject=wanted,
                    priority=Priority.HIGH,
                    reason=Reason.USER_REQUEST,
                    known_version=known.version,
                    upstream_id=known.upstream_id,
                )
            )
            deadline = asyncio.get_running_loop().time() + wait_s
            while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
                answer = await reader.read(kind, key)
                if answer.kept.version >= outcome.version:
                    return outcome, answer
                await news.news(left_s)
            return outcome, None


async def _watch(settings: Settings, subject: str, *, as_json: bool) -> None:
    async with opened(settings) as snapshots:
        kind, _, key = subject.partition("/")
        shown = None
        async with snapshots.news.watch([snapshots.reader.subject(kind, key).id]) as news:
            while True:
                answer = await snapshots.reader.read(kind, key)
                if shown != (answer.kept.version, answer.freshness):
                    shown = (answer.kept.version, answer.freshness)
                    _print(answer, as_json=as_json)
                await news.news(_LOOK_AGAIN_S)


async def _list(settings: Settings, after: str | None, limit: int) -> list[DeadLetter]:
    async with opened(settings) as snapshots:
        return await snapshots.dead.list(after=after, limit=limit)


async def _show(settings: Settings, letter: str) -> DeadLetter:
    async with opened(settings) as snapshots:
        return await snapshots.dead.get(letter)


async def _replay(settings: Settings, letter: str) -> Outcome:
    async with opened(settings) as snapshots:
        return await snapshots.dead.replay(letter)


async def _drop(settings: Settings, letter: str) -> None:
    async with opened(settings) as snapshots:
        if not await snapshots.dead.drop(letter):
            raise NotFound("dead letter", letter)


def _print(answer: SnapshotAnswer, *, as_json: bool) -> None:
    if as_json:
        typer.echo(answer.encode())
        return
    told = msgspec.json.decode(answer.encode())
    size = "no snapshot" if answer.body is None else f"{len(answer.body):,} bytes"
    queued = "; a refresh is queued" if answer.update_queued else ""
    typer.echo(f"{answer.freshness}: {size}, changed {told['lastUpdatedAt']}, checked {told['lastCheckedAt']}{queued}")


def _told(outcome: Outcome) -> str:
    return "already_processing" if isinstance(outcome, AlreadyProcessing) else "queued"


def _line(letter: DeadLetter) -> str:
    update = letter.update
    return f"{letter.id}  {update.failed_at:%Y-%m-%d %H:%M:%S}  {update.subject_id}  {update.reason}  {update.message}"


def _as_json(letter: DeadLetter) -> bytes:
    return msgspec.json.encode({"id": letter.id, **msgspec.json.decode(letter.update.encode())})
