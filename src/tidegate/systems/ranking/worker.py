"""Rebuilds copies of boards from SQL, by command or when a copy is incomplete, and deletes expired rows.

Readers see the old window or the new one, never a part of one: each window is prepared under other keys and replaced in
one step. Events that were counted meanwhile went to the old window, so all scores are written once more afterwards;
this changes only scores that are missing.
"""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

from tidegate.core.clock import milliseconds, monotonic_ms
from tidegate.core.errors import ValkeyUnavailable
from tidegate.core.ids import new_id
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import RANKING_REBUILT
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking import score_store
from tidegate.systems.ranking.board_copy import BoardCopy
from tidegate.systems.ranking.model import RankingPeriod, Rebuilt, Score, Window, kept_windows
from tidegate.systems.ranking.settings import Board

log = get_logger(__name__)
_PAGE = 1000
_RECOUNT_WITHIN = timedelta(minutes=10)
PRUNE_EVERY = timedelta(days=1)


class Rebuilder:
    """Rebuilds copies from SQL."""

    def __init__(self, database: Database, copies: Mapping[str, BoardCopy]) -> None:
        self._database, self.copies = database, copies

    async def recount(self, board: Board) -> None:
        """Recompute the scores in SQL from the stored events."""
        await self._database.transaction(score_store.recount, board, timeout=_RECOUNT_WITHIN)

    async def rebuild(self, copy: BoardCopy) -> Rebuilt:
        """Rebuild every window; readers see each replaced in one step."""
        board, builder = copy.board, new_id()
        # 1. Leave a mark on the server. If the server loses its data meanwhile, the mark is missing at the end.
        await copy.begin(builder)
        # 2. Make sure that the scores in SQL are those of the present calendar.
        await self._database.transaction(score_store.lock, board, timeout=_RECOUNT_WITHIN)
        windows = kept_windows(self._database.clock.now(), board.zone)
        # 3. Prepare each window under other keys, and replace it in one step.
        sizes = [await self._make(copy, window, builder) for window in windows]
        # 4. Add what was counted into the old windows meanwhile.
        await self.complete(copy)
        # 5. Only now may readers rely on the copy.
        if not await copy.declare_whole(builder):
            raise ValkeyUnavailable(f"the server lost its data while the board {board.name!r} was made anew")
        rebuilt = Rebuilt(board=board.name, windows=sum(map(bool, sizes)), members=sum(sizes))
        RANKING_REBUILT.labels(board.name).inc()
        log.info("ranking.rebuilt", board=board.name, windows=rebuilt.windows, members=rebuilt.members)
        return rebuilt

    async def complete(self, copy: BoardCopy) -> None:
        """Write all scores of SQL; scores that are present stay as they are."""
        for window in kept_windows(self._database.clock.now(), copy.board.zone):
            async for page in self._pages(copy.board, window):
                await copy.fill(window, page)

    async def _make(self, copy: BoardCopy, window: Window, builder: str) -> int:
        """Rebuild one window; return its number of members."""
        size = 0
        async for page in self._pages(copy.board, window):
            await copy.fill(window, page, builder=builder)
            size += len(page)
        await (copy.swap(window, builder) if size else copy.empty(window))
        return size

    async def _pages(self, board: Board, window: Window) -> AsyncIterator[list[Score]]:
        after, size = "", _PAGE
        while size == _PAGE:
            page = await self._database.read(score_store.page, board, window, after, _PAGE)
            size = len(page)
            if page:
                yield page
                after = page[-1].member


class RankingRebuilds:
    """Due source of a timekeeper that completes the copies.

    An incomplete copy is rebuilt. All scores are written once more when a leader begins, and after the server was
    unavailable, since it may have lost its last writes.
    """

    def __init__(self, valkey: Valkey, rebuilder: Rebuilder) -> None:
        self._valkey, self._rebuilder = valkey, rebuilder
        self._known_losses, self._must_complete = valkey.losses, True

    def begin(self) -> None:
        """Complete all copies first, since a previous leader may have died while it wrote them."""
        self._must_complete = True

    async def fire(self) -> int | None:
        """Rebuild or complete the copies that need it."""
        # Read before the work: a loss during it is noticed by the next call.
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


class RankingRetention:
    """Due source of a timekeeper that deletes rows of expired windows once a day."""

    def __init__(self, database: Database, boards: Mapping[str, Board]) -> None:
        self._database, self._boards = database, boards
        self._due_ms = 0.0

    async def fire(self) -> int | None:
        """Delete if a day has passed; return after how many ms the next one has."""
        if monotonic_ms() >= self._due_ms:
            for board in self._boards.values():
                await self._prune(board)
            self._due_ms = monotonic_ms() + milliseconds(PRUNE_EVERY)
        return max(1, round(self._due_ms - monotonic_ms()))

    async def _prune(self, board: Board) -> None:
        """Delete in short transactions, by window and by day, between which events are counted."""
        pruned = 0
        for period in RankingPeriod:
            while rows := await self._database.transaction(score_store.prune_scores, board, period):
                pruned += rows
        while rows := await self._database.transaction(score_store.prune_events, board):
            pruned += rows
        if pruned:
            log.info("ranking.pruned", board=board.name, rows=pruned)

    def __repr__(self) -> str:
        return "RankingPruner"
