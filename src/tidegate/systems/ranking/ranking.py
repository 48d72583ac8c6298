"""The ranking as a whole: who is ahead, and who is around whom. Without the server the answer is empty, and says so."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import date

import msgspec

from tidegate.core.arguments import normalise_id, require_whole
from tidegate.core.errors import NotFound, Unavailable
from tidegate.core.telemetry.metrics import RANKING_READS_DEGRADED
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.delivery import Handler
from tidegate.runtime.service import Service
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking.board import BoardCopy, Entry, Found
from tidegate.systems.ranking.handler import Counter, handlers
from tidegate.systems.ranking.keys import keeper_wake
from tidegate.systems.ranking.rebuild import RankingKeeper, RankingPruner, Rebuilder, Rebuilt
from tidegate.systems.ranking.settings import Board, RankingSettings
from tidegate.systems.ranking.tables import LONGEST_ID
from tidegate.systems.ranking.windows import LARGEST_TOP, Period, Window, window_on

MOST_NEIGHBOURS = 100
_SERVER_WITHIN_S = 1.0


class Top(msgspec.Struct, frozen=True, kw_only=True):
    """The first members of a window."""

    window: Window
    total: int
    """Members in all."""
    entries: list[Entry]
    degraded: bool
    """Nobody can say at present: the server is away, or its copy is being made anew. Then it is empty."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a member is in a window."""

    window: Window
    member: str
    rank: int | None
    """None where it has no score in this window, or nobody can say."""
    score: int | None
    total: int
    """Members in all."""
    around: list[Entry]
    """The member with those before and behind it, in order."""
    degraded: bool
    """As in `Top`."""


class Ranking:
    """The boards of an installation, as one process sees them."""

    def __init__(
        self, database: Database, valkey: Valkey, settings: RankingSettings, *, breaker: CircuitBreaker | None = None
    ) -> None:
        self._database, self._valkey = database, valkey
        self._breaker = breaker or CircuitBreaker("ranking")
        self.boards = {board.name: board for board in settings.boards}
        self._copies = {name: BoardCopy(valkey, board, database.clock) for name, board in self.boards.items()}
        self._wakeup = Wakeup(valkey, keeper_wake(valkey))
        self._counters = {name: Counter(database, copy, self._wakeup) for name, copy in self._copies.items()}
        self._rebuilder = Rebuilder(database, self._copies)

    def board(self, name: str) -> Board:
        """The board of this name; `NotFound` where there is none."""
        return self._copy(name).board

    async def top(self, board: str, period: Period = Period.DAILY, *, on: date | None = None, limit: int = 10) -> Top:
        """The first `limit` members of the window of a day, by default of today. `NotFound` for an unknown board."""
        require_whole("limit", limit, least=1, most=LARGEST_TOP)
        copy, window = self._find(board, period, on)
        found = await self._ask(lambda: copy.top(window, limit))
        if found is None:
            return Top(window=window, total=0, entries=[], degraded=True)
        return Top(window=window, total=found.total, entries=found.entries, degraded=False)

    async def around(
        self, board: str, member: str, period: Period = Period.DAILY, *, on: date | None = None, neighbours: int = 2
    ) -> Place:
        """Where a member is in the window of a day, with up to `neighbours` before and behind it."""
        require_whole("neighbours", neighbours, least=0, most=MOST_NEIGHBOURS)
        member = normalise_id("member", member, longest=LONGEST_ID)
        copy, window = self._find(board, period, on)
        found = await self._ask(lambda: copy.around(window, member, neighbours))
        entries = [] if found is None else found.entries
        mine = next((entry for entry in entries if entry.member == member), None)
        return Place(
            window=window,
            member=member,
            rank=None if mine is None else mine.rank,
            score=None if mine is None else mine.score,
            total=0 if found is None else found.total,
            around=entries,
            degraded=found is None,
        )

    async def rebuild(self, board: str) -> Rebuilt:
        """Count everything anew from the events in SQL, and make the copy on the server anew from that."""
        copy = self._copy(board)
        await self._rebuilder.recount(copy.board)
        return await self._rebuilder.rebuild(copy)

    @property
    def handlers(self) -> Sequence[Handler]:
        """For the relay: what counts."""
        return handlers(list(self.boards.values()), self._counters, self._database)

    @property
    def duty(self) -> Service:
        """For the leader: sees that the copies are whole, and that nothing is kept for longer than it counts."""
        keeper = RankingKeeper(self._valkey, self._rebuilder)
        pruner = RankingPruner(self._database, self.boards)
        return Timekeeper(self._wakeup, [keeper, pruner], on_begin=keeper.begin)

    def _copy(self, board: str) -> BoardCopy:
        if board not in self._copies:
            raise NotFound("board", board, known=self._copies)
        return self._copies[board]

    def _find(self, board: str, period: Period, on: date | None) -> tuple[BoardCopy, Window]:
        copy = self._copy(board)
        zone = copy.board.zone
        day = self._database.clock.now().astimezone(zone).date() if on is None else on
        return copy, window_on(period, day, zone)

    async def _ask(self, question: Callable[[], Awaitable[Found | None]]) -> Found | None:
        """The answer; None where nobody can say. A copy that is not whole is made so by the keeper."""
        try:
            with self._breaker.attempt():
                async with asyncio.timeout(_SERVER_WITHIN_S):
                    if (found := await question()) is None:
                        await self._wakeup.notify()
        except (Unavailable, TimeoutError):
            found = None
        if found is None:
            RANKING_READS_DEGRADED.inc()
        return found
