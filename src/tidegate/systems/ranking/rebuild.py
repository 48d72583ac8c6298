"""Makes the copy of a board anew from SQL: by command, and by itself where it is not whole.

Whoever reads meanwhile sees the old window or the new one, never half of one: each is made aside and put in place in
one step. What was counted in between went to the old one, so everything is put once more afterwards, which changes only
what is not there.
"""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import msgspec

from tidegate.core.clock import milliseconds, monotonic_ms
from tidegate.core.errors import ValkeyUnavailable
from tidegate.core.ids import new_id
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import RANKING_REBUILT
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking import scores
from tidegate.systems.ranking.board import BoardCopy
from tidegate.systems.ranking.scores import Score
from tidegate.systems.ranking.settings import Board
from tidegate.systems.ranking.windows import Period, Window, kept_windows

log = get_logger(__name__)

_PAGE = 1000
_RECOUNT_WITHIN = timedelta(minutes=10)
PRUNE_EVERY = timedelta(days=1)


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What a board has, made anew."""

    board: str
    windows: int
    """Those that have members."""
    members: int
    """In all of them together."""


class Rebuilder:
    """Makes the copy agree with SQL."""

    def __init__(self, database: Database, copies: Mapping[str, BoardCopy]) -> None:
        self._database, self.copies = database, copies

    async def recount(self, board: Board) -> None:
        """Make the scores in SQL anew, from the events that are there."""
        await self._database.transaction(scores.recount, board, timeout=_RECOUNT_WITHIN)

    async def rebuild(self, copy: BoardCopy) -> Rebuilt:
        """Make every window anew, each in one step for those who read."""
        board, builder = copy.board, new_id()
        await copy.begin(builder)
        await self._database.transaction(scores.lock, board, timeout=_RECOUNT_WITHIN)
        windows = kept_windows(self._database.clock.now(), board.zone)
        sizes = [await self._make(copy, window, builder) for window in windows]
        await self.complete(copy)
        if not await copy.declare_whole(builder):
            raise ValkeyUnavailable(f"the server lost its data while the board {board.name!r} was made anew")
        rebuilt = Rebuilt(board=board.name, windows=sum(map(bool, sizes)), members=sum(sizes))
        RANKING_REBUILT.labels(board.name).inc()
        log.info("ranking.rebuilt", board=board.name, windows=rebuilt.windows, members=rebuilt.members)
        return rebuilt

    async def complete(self, copy: BoardCopy) -> None:
        """Put everything that SQL has; what is there already stays as it is."""
        for window in kept_windows(self._database.clock.now(), copy.board.zone):
            async for page in self._pages(copy.board, window):
                await copy.fill(window, page)

    async def _make(self, copy: BoardCopy, window: Window, builder: str) -> int:
        """Make one window anew; returns how many members it has."""
        size = 0
        async for page in self._pages(copy.board, window):
            await copy.fill(window, page, builder=builder)
            size += len(page)
        await (copy.swap(window, builder) if size else copy.empty(window))
        return size

    async def _pages(self, board: Board, window: Window) -> AsyncIterator[list[Score]]:
        after, size = "", _PAGE
        while size == _PAGE:
            page = await self._database.read(scores.page, board, window, after, _PAGE)
            size = len(page)
            if page:
                yield page
                after = page[-1].member


class RankingKeeper:
    """A source of a timekeeper: sees that every copy is whole.

    A copy is made anew where it is not whole. Everything is put once more when a leader begins, and when the server was
    away and is back: it may lack its last moments without knowing it.
    """

    def __init__(self, valkey: Valkey, rebuilder: Rebuilder) -> None:
        self._valkey, self._rebuilder = valkey, rebuilder
        self._known_losses, self._must_complete = valkey.losses, True

    def begin(self) -> None:
        """Somebody else kept them before, and may have died over it."""
        self._must_complete = True

    async def fire(self) -> int | None:
        """Look, and repair."""
        losses = self._valkey.losses
        is_doubtful = self._must_complete or losses != self._known_losses
        for copy in self._rebuilder.copies.values():
            if not await copy.is_whole():
                await self._rebuilder.rebuild(copy)
            elif is_doubtful:
                await self._rebuilder.complete(copy)
        self._known_losses, self._must_complete = losses, False
        return None

    def __repr__(self) -> str:
        return "RankingKeeper"


class RankingPruner:
    """A source of a timekeeper: once a day, rows go that are in no window any more."""

    def __init__(self, database: Database, boards: Mapping[str, Board]) -> None:
        self._database, self._boards = database, boards
        self._due_ms = 0.0

    async def fire(self) -> int | None:
        """Prune if the day is over; return when it will be."""
        if monotonic_ms() >= self._due_ms:
            for board in self._boards.values():
                await self._prune(board)
            self._due_ms = monotonic_ms() + milliseconds(PRUNE_EVERY)
        return max(1, round(self._due_ms - monotonic_ms()))

    async def _prune(self, board: Board) -> None:
        """Window by window, and day by day: others count in between."""
        pruned = 0
        for period in Period:
            while rows := await self._database.transaction(scores.prune_scores, board, period):
                pruned += rows
        while rows := await self._database.transaction(scores.prune_events, board):
            pruned += rows
        if pruned:
            log.info("ranking.pruned", board=board.name, rows=pruned)

    def __repr__(self) -> str:
        return "RankingPruner"
