"""`tidegate dead-letters`: group dead letters of all kinds, and replay or discard a group."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import counted, number

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tidegate.dashboard.dead_letters import (
        DeadLetterGroup,
        DeadLetterGroups,
        GroupAction,
        GroupedDeadLetters,
        SettledGroup,
    )
    from tidegate.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Dead letters of all kinds, by cause.")

_GROUP = typer.Argument(help="Id of a group, as printed by `groups`.")
_JSON = typer.Option(False, "--json", help="Print the result as JSON.")


@app.command()
def groups(
    *,
    kind: str | None = typer.Option(
        None, help="Only this kind: events, messages, or that of a system, such as snapshots, campaigns or crawl."
    ),
    as_json: bool = _JSON,
) -> None:
    """List groups of dead letters with the same source, name and reason, the largest first.

    The oldest 10,000 dead letters of each kind are examined.
    """
    found = run(_groups(load_settings(), kind))
    if as_json:
        typer.echo(msgspec.json.encode(found))
        return
    if found.groups:
        _print(found)
    elif not found.unknown:
        typer.echo("No dead letters.")
    for one in found.incomplete:
        typer.echo(f"{one}: only the oldest dead letters were examined; replay or discard some to see the others")
    for part in found.unknown:
        typer.echo(f"{part.part}: {part.reason}", err=True)
    if found.unknown:
        raise typer.Exit(1)


@app.command()
def replay(group: str = _GROUP, *, as_json: bool = _JSON) -> None:
    """Replay the dead letters of a group. Repeating the command replays what is left."""
    from tidegate.dashboard.dead_letters import GroupAction

    settled = run(_settle(load_settings(), group, GroupAction.REPLAY))
    _tell(settled, "replayed", as_json=as_json)


@app.command()
def discard(
    group: str = _GROUP,
    *,
    yes: bool = typer.Option(False, "--yes", help="Do not ask for confirmation."),
    as_json: bool = _JSON,
) -> None:
    """Discard the dead letters of a group permanently. Repeating the command discards what is left."""
    from tidegate.dashboard.dead_letters import GroupAction

    settings = load_settings()
    if not yes:
        found = run(_find(settings, group))
        question = f"Discard {counted(found.count, 'dead letter')} permanently ({found.reason or 'no reason'})?"
        if found.can_discard:
            typer.confirm(question, abort=True, err=True)
    settled = run(_settle(settings, group, GroupAction.DISCARD))
    _tell(settled, "discarded", as_json=as_json)


def _tell(settled: SettledGroup, done: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode({"group": settled.group, done: settled.settled, "stayed": settled.stayed}))
        return
    typer.echo(f"{counted(settled.settled, 'dead letter')} {done}")
    if settled.stayed:
        typer.echo(f"{number(settled.stayed)} stayed: they are being processed, or were settled by another caller")


def _print(found: DeadLetterGroups) -> None:
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table

    table = Table("group", "count", "source", "name", "newest", "reason", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for one in found.groups:
        newest = f"{one.newest:%Y-%m-%d %H:%M}"
        table.add_row(one.id, number(one.count), *(escape(each) for each in (one.source, one.name, newest, one.reason)))
    print_table(table)


async def _groups(settings: Settings, kind: str | None) -> DeadLetterGroups:
    async with _opened(settings) as grouped:
        return await grouped.read(kind)


async def _find(settings: Settings, group: str) -> DeadLetterGroup:
    async with _opened(settings) as grouped:
        return await grouped.find(group)


async def _settle(settings: Settings, group: str, action: GroupAction) -> SettledGroup:
    async with _opened(settings, wakes=True) as grouped:
        return await grouped.settle_all(group, action)


@asynccontextmanager
async def _opened(settings: Settings, *, wakes: bool = False) -> AsyncGenerator[GroupedDeadLetters]:
    """The dead letters of all systems. With `wakes`, leaders look for replayed events afterwards.

    They do so after any outcome: an earlier command may have died between its commit and the wake-up.
    """
    from tidegate.app import open_application
    from tidegate.dashboard.dead_letters import GroupedDeadLetters
    from tidegate.engine.system import OpenCollection

    async with open_application(settings) as application:
        try:
            yield GroupedDeadLetters(list(application.systems.values()))
        finally:
            opened = application.find(OpenCollection)
            if wakes and opened is not None:
                for parts in opened.collection.contexts.values():
                    await parts.commits.notify()
