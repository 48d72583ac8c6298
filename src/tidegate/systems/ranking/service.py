"""Rankings: reads the first members of a window, or a member with its neighbours, and rebuilds boards from SQL.

A window is one period of a board, such as a certain day or week. While the Valkey server is unavailable, results are
empty and marked as degraded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import date

from tidegate.core.arguments import normalise_id, require_whole
from tidegate.core.errors import NotFound, Unavailable
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.delivery import Handler
from tidegate.runtime.service import Service
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking.board_copy import (
    BoardCopy,
    RankingRebuilds,
    RankingRetention,
    Rebuilder,
    rebuild_wakeup_key,
)
from tidegate.systems.ranking.event_counter import EventCounter, handlers
from tidegate.systems.ranking.metrics import RANKING_READS_DEGRADED
from tidegate.systems.ranking.model import (
    LARGEST_TOP,
    MemberPlace,
    RankingPeriod,
    RankingTop,
    Rebuilt,
    Window,
    WindowRanks,
    window_on,
)
from tidegate.systems.ranking.score_store import LONGEST_ID
from tidegate.systems.ranking.settings import Board, RankingSettings

MOST_NEIGHBOURS = 100
_SERVER_WITHIN_S = 1.0


class Ranking:
    """The boards of a deployment.

    Example:
        board = Board(name="sales", event="PaymentCompleted", member="concert", id="payment", time="paid_at")
        ranking = Ranking(database, valkey, RankingSettings(boards=(board,)))
        top = await ranking.top("sales", RankingPeriod.WEEKLY, limit=10)
    """

    def __init__(
        self, database: Database, valkey: Valkey, settings: RankingSettings, *, breaker: CircuitBreaker | None = None
    ) -> None:
        self._database, self._valkey = database, valkey
        self._breaker = breaker or CircuitBreaker("ranking")
        self.boards = {board.name: board for board in settings.boards}
        self._copies = {name: BoardCopy(valkey, board, database.clock) for name, board in self.boards.items()}
        self._wakeup = Wakeup(valkey, rebuild_wakeup_key(valkey))
        self._counters = {name: EventCounter(database, copy, self._wakeup) for name, copy in self._copies.items()}
        self._rebuilder = Rebuilder(database, self._copies)

    def board(self, name: str) -> Board:
        """Return a board. Raises `NotFound`."""
        return self._copy(name).board

    async def top(
        self, board: str, period: RankingPeriod = RankingPeriod.DAILY, *, on: date | None = None, limit: int = 10
    ) -> RankingTop:
        """Return the first `limit` members of the window of a day (default: today). Raises `NotFound` for an unknown
        board."""
        require_whole("limit", limit, least=1, most=LARGEST_TOP)
        copy, window = self._find(board, period, on)
        found = await self._ask(lambda: copy.top(window, limit))
        if found is None:
            return RankingTop(window=window, total=0, entries=[], degraded=True)
        return RankingTop(window=window, total=found.total, entries=found.entries, degraded=False)

    async def around(
        self,
        board: str,
        member: str,
        period: RankingPeriod = RankingPeriod.DAILY,
        *,
        on: date | None = None,
        neighbours: int = 2,
    ) -> MemberPlace:
        """Return a member's place in the window of a day, with up to `neighbours` members before and after it."""
        require_whole("neighbours", neighbours, least=0, most=MOST_NEIGHBOURS)
        member = normalise_id("member", member, longest=LONGEST_ID)
        copy, window = self._find(board, period, on)
        found = await self._ask(lambda: copy.around(window, member, neighbours))
        entries = [] if found is None else found.entries
        mine = next((entry for entry in entries if entry.member == member), None)
        return MemberPlace(
            window=window,
            member=member,
            rank=None if mine is None else mine.rank,
            score=None if mine is None else mine.score,
            total=0 if found is None else found.total,
            around=entries,
            degraded=found is None,
        )

    async def rebuild(self, board: str) -> Rebuilt:
        """Recompute all scores from the events in SQL, and rebuild the copy on the server."""
        copy = self._copy(board)
        await self._rebuilder.recount(copy.board)
        return await self._rebuilder.rebuild(copy)

    @property
    def handlers(self) -> Sequence[Handler]:
        """The outbox handlers that count events."""
        return handlers(list(self.boards.values()), self._counters, self._database)

    @property
    def leader_service(self) -> Service:
        """The leader's service that completes copies and deletes expired rows."""
        keeper = RankingRebuilds(self._valkey, self._rebuilder)
        pruner = RankingRetention(self._database, self.boards)
        return Timekeeper(self._wakeup, [keeper, pruner], on_begin=keeper.begin)

    def _copy(self, board: str) -> BoardCopy:
        if board not in self._copies:
            raise NotFound("board", board, known=self._copies)
        return self._copies[board]

    def _find(self, board: str, period: RankingPeriod, on: date | None) -> tuple[BoardCopy, Window]:
        copy = self._copy(board)
        zone = copy.board.zone
        day = self._database.clock.now().astimezone(zone).date() if on is None else on
        return copy, window_on(period, day, zone)

    async def _ask(self, question: Callable[[], Awaitable[WindowRanks | None]]) -> WindowRanks | None:
        """Ask the server; return None if the ranking is unavailable. An incomplete copy sends the wake-up of its
        rebuild."""
        try:
            with self._breaker.attempt():
                async with asyncio.timeout(_SERVER_WITHIN_S):
                    # The copy is incomplete: the leader rebuilds it. This read does not wait for that.
                    if (found := await question()) is None:
                        await self._wakeup.notify()
        except (Unavailable, TimeoutError):
            found = None
        if found is None:
            RANKING_READS_DEGRADED.inc()
        return found
