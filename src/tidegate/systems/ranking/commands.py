"""`tidegate ranking`: show the first members of a board, and rebuild boards from their events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import date, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import counted, number
from tidegate.core.errors import InvalidSettings
from tidegate.systems.ranking.model import LARGEST_TOP, RankingPeriod

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.systems.ranking.model import RankingTop, Rebuilt
    from tidegate.systems.ranking.service import Ranking

app = typer.Typer(help="Show rankings, and rebuild them.", no_args_is_help=True)
_BOARD = typer.Argument(help="The name of a board.")
_JSON = typer.Option(False, "--json", help="Print JSON.")
_REMEDY = "A running process rebuilds it (tidegate up); so does: tidegate ranking rebuild"


@app.command()
def top(
    board: str = _BOARD,
    *,
    period: RankingPeriod = typer.Option(RankingPeriod.DAILY, help="A day, an ISO week or a month."),
    day: datetime | None = typer.Option(
        None, "--date", formats=["%Y-%m-%d"], help="A day of the window, by the calendar of the board; else today."
    ),
    limit: int = typer.Option(10, min=1, max=LARGEST_TOP, help="Largest number of members."),
    as_json: bool = _JSON,
) -> None:
    """Show the first members of a board. Exits with 1 if the ranking is unavailable."""
    found = run(_top(load_settings(), board, period, None if day is None else day.date(), limit))
    if as_json:
        typer.echo(msgspec.json.encode(_as_json(board, found)))
    else:
        _show(board, found)
    if found.degraded:
        raise typer.Exit(1)


@app.command()
def rebuild(
    boards: list[str] | None = typer.Argument(None, help="The names of boards; default: all boards."),
    *,
    as_json: bool = _JSON,
) -> None:
    """Recompute all scores from the events in the database, and rebuild the rankings.

    Readers see the old ranking or the new one, never a part of one.
    """
    rebuilt = run(_rebuild(load_settings(), boards or []))
    if as_json:
        typer.echo(msgspec.json.encode({"boards": rebuilt}))
        return
    for each in rebuilt:
        windows = counted(each.windows, "window")
        typer.echo(f"{each.board}: {counted(each.members, 'score')} in {windows}")


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncGenerator[Ranking]:
    from tidegate.connections import open_database, open_valkey
    from tidegate.systems.ranking.system import NO_BOARDS, open_ranking

    async with open_valkey(settings) as valkey, open_database(settings) as database:
        ranking = open_ranking(settings, database, valkey)
        if ranking is None:
            raise InvalidSettings(NO_BOARDS)
        yield ranking


async def _top(settings: Settings, board: str, period: RankingPeriod, day: date | None, limit: int) -> RankingTop:
    async with _opened(settings) as ranking:
        return await ranking.top(board, period, on=day, limit=limit)


async def _rebuild(settings: Settings, boards: list[str]) -> list[Rebuilt]:
    async with _opened(settings) as ranking:
        named = [ranking.board(name).name for name in boards]  # raises before any board is rebuilt
        return [await ranking.rebuild(name) for name in dict.fromkeys(named or ranking.boards)]


def _as_json(board: str, found: RankingTop) -> dict[str, object]:
    window = found.window
    return {
        "board": board,
        "period": window.period,
        "window": window.name,
        "total": found.total,
        "degraded": found.degraded,
        "members": found.entries,
    }


def _show(board: str, found: RankingTop) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if found.degraded:
        typer.echo(f"{board}, {found.window.name}: the ranking is unavailable. {_REMEDY}")
        return
    typer.echo(f"{board}, {found.window.name}: {counted(found.total, 'member')}")
    if not found.entries:
        return
    table = Table("rank", "member", "score", box=None, pad_edge=False)
    for entry in found.entries:
        table.add_row(str(entry.rank), escape(entry.member), number(entry.score))
    Console(soft_wrap=True).print(table)
