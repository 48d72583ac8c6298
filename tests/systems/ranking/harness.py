"""A ranking on real servers with a clock of its own, and the plain model that it is compared with."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select

from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.outbox import Event
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking.board_copy import BoardCopy, RankingRebuilds, Rebuilder
from tidegate.systems.ranking.model import CountedEvent, RankingPeriod, windows_at
from tidegate.systems.ranking.score_store import ranking_scores
from tidegate.systems.ranking.service import Ranking
from tidegate.systems.ranking.settings import Board, RankingSettings

NOW = datetime(2025, 12, 30, 12, tzinfo=UTC)
"""A Tuesday of the first week of 2026."""
SEOUL = Board(name="concerts", timezone="Asia/Seoul")


class RankingHarness:
    """What a test has in hand."""

    def __init__(self, database: Database, valkey: Valkey, clock: ManualClock, *boards: Board) -> None:
        self.database, self.valkey, self.clock = database, valkey, clock
        self.board, *_ = boards
        self.ranking = Ranking(database, valkey, RankingSettings(boards=boards))
        self.copy = BoardCopy(valkey, self.board, clock)
        self.rebuilder = Rebuilder(database, {self.board.name: self.copy})
        self.keeper = RankingRebuilds(valkey, self.rebuilder)

    async def deliver(self, *counts: CountedEvent) -> None:
        """One after the other, as the relay does with events of one key."""
        [handler] = self.ranking.handlers
        for each in counts:
            await handler.handle(event(each))

    async def shown(self, period: RankingPeriod = RankingPeriod.DAILY, on: datetime = NOW) -> list[tuple[str, int]]:
        """Members and scores in the order of the ranking, which must be there."""
        day = on.astimezone(self.board.zone).date()
        top = await self.ranking.top(self.board.name, period, on=day, limit=1000)
        assert not top.degraded
        assert [entry.rank for entry in top.entries] == list(range(1, top.total + 1))
        return [(entry.member, entry.score) for entry in top.entries]

    async def stored(self) -> list[tuple[Any, ...]]:
        """Every score in SQL."""
        return await self.database.read(_stored)


def _stored(tx: Transaction) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in tx.execute(select(ranking_scores)))


@asynccontextmanager
async def standing(url: str, valkey: Valkey, *boards: Board, at: datetime = NOW) -> AsyncGenerator[RankingHarness]:
    """A ranking whose copy is whole, and empty."""
    clock = ManualClock(at)
    async with await Database.open(url, clock=clock) as database:
        harness = RankingHarness(database, valkey, clock, *(boards or (SEOUL,)))
        await harness.keeper.fire()
        yield harness


def count(member: str, event_id: str, *, ago: timedelta = timedelta(0), amount: int = 1) -> CountedEvent:
    return CountedEvent(event_id=event_id, member=member, at=NOW - ago, amount=amount)


def event(each: CountedEvent, kind: str = "ranking.counted") -> Event:
    """As an application would add it to its transaction."""
    payload = {"member": each.member, "event_id": each.event_id, "time": each.at.isoformat(), "amount": each.amount}
    return Event(kind, key=each.member, payload=payload)


def expected(
    counts: Iterable[CountedEvent], board: Board, period: RankingPeriod, on: datetime
) -> list[tuple[str, int]]:
    """What the ranking of a window must be: every event once, the higher score first, of equals who was first."""
    number = list(RankingPeriod).index(period)
    window = windows_at(on, board.zone)[number]
    once = {each.event_id: each for each in counts}.values()
    inside = [each for each in once if windows_at(each.at, board.zone)[number] == window]
    members = {each.member for each in inside}
    ranked = [_standing([each for each in inside if each.member == member]) for member in members]
    # Of two that reached it in the same microsecond, the greater name is ahead: any rule will do, if it is one.
    ranked.sort(key=lambda each: each[2].encode(), reverse=True)
    ranked.sort(key=lambda each: (-each[0], each[1]))
    return [(member, score) for score, _, member in ranked]


def _standing(counts: Sequence[CountedEvent]) -> tuple[int, datetime, str]:
    return sum(each.amount for each in counts), max(each.at for each in counts), counts[0].member
