"""Copy of a board on the Valkey server: the scores of SQL, in the order of the ranking; and its rebuild from SQL.

The copy holds absolute scores, and a score is only replaced by a higher one, so repeated or late updates change nothing
and no event ids are stored. All keys of a board are in one unit, since a day, a week and a month are updated in one
atomic step.

A copy is rebuilt by command or when it is incomplete. Readers see the old window or the new one, never a part of one:
each window is prepared under other keys and replaced in one step. Events that were counted meanwhile went to the old
window, so all scores are written once more afterwards; this changes only scores that are missing.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tidegate.core.clock import Clock, SystemClock, milliseconds, monotonic_ms, to_ms
from tidegate.core.errors import ContractBroken, ValkeyUnavailable
from tidegate.core.ids import new_id
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script
from tidegate.storage.valkey.scripts import run_together
from tidegate.systems.ranking import score_store
from tidegate.systems.ranking.metrics import RANKING_REBUILT
from tidegate.systems.ranking.model import (
    MemberScores,
    RankedMember,
    RankingPeriod,
    Rebuilt,
    Score,
    Window,
    WindowRanks,
    Windows,
    kept_windows,
)
from tidegate.systems.ranking.settings import Board


class BoardKeys:
    """Keys of the copy of one board."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.epoch: Key = unit.key("ranking:epoch")
        """string: time zone of the calendar of the copy, set when it is complete; never expires."""

    def building(self, builder: str) -> Key:
        """string: a rebuild is in progress, and the server has not lost its data since it began; expires."""
        return self._unit.key(f"ranking:building:{builder}")

    def scores(self, window: Window) -> Key:
        """zset: place and member, scored by the plain score; expires when the window is no longer kept."""
        return self._unit.key(f"ranking:{window.period}:{window.name}")

    def places(self, window: Window) -> Key:
        """hash: member -> place, by which the member is found in the zset; expires with it."""
        return self._unit.key(f"ranking:{window.period}:{window.name}:places")

    def aside(self, window: Window, builder: str) -> Key:
        """zset: the window while it is rebuilt."""
        return self._unit.key(f"ranking:{window.period}:{window.name}:aside:{builder}")

    def aside_places(self, window: Window, builder: str) -> Key:
        """hash: member -> place in the window that is rebuilt."""
        return self._unit.key(f"ranking:{window.period}:{window.name}:aside-places:{builder}")


def rebuild_wakeup_key(valkey: Valkey) -> Key:
    """Return the key of the wake-up that is sent when a copy is found to be incomplete."""
    return valkey.unit("ranking").key("wake")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE_DIGITS = 13
"""Hexadecimal digits: microseconds until the year 2112."""
_LATEST = 16**_PLACE_DIGITS - 1
_ASIDE_FOR = timedelta(hours=1)
"""Longer than the rebuild of any board takes."""
Row = tuple[str, str, int]
"""Member, place and score, as scripts take them."""


@lua_script("put.lua")
async def _put(
    valkey: Valkey,
    *,
    day: Key,
    day_places: Key,
    week: Key,
    week_places: Key,
    month: Key,
    month_places: Key,
    epoch: Key,
    calendar: str,
    day_until: int,
    week_until: int,
    month_until: int,
    rows: tuple[list[Row], list[Row], list[Row]],
    now_ms: int | None,
) -> list[int]: ...


@lua_script("fill.lua")
async def _fill(
    valkey: Valkey, *, scores: Key, places: Key, rows: list[Row], until_ms: int, at_most_ms: int, now_ms: int | None
) -> int: ...


@lua_script("swap.lua")
async def _swap(
    valkey: Valkey, *, scores: Key, places: Key, aside: Key, aside_places: Key, until_ms: int, now_ms: int | None
) -> int: ...


@lua_script("declare.lua")
async def _declare(valkey: Valkey, *, epoch: Key, building: Key, calendar: str) -> int: ...


@lua_script("top.lua")
async def _top(valkey: Valkey, *, scores: Key, epoch: Key, calendar: str, most: int) -> list[Any]: ...


@lua_script("around.lua")
async def _around(
    valkey: Valkey, *, scores: Key, places: Key, epoch: Key, calendar: str, member: str, neighbours: int
) -> list[Any]: ...


class BoardCopy:
    """The copy of one board."""

    def __init__(self, valkey: Valkey, board: Board, clock: Clock | None = None) -> None:
        self._valkey, self.board, self._clock = valkey, board, clock or SystemClock()
        self._keys = BoardKeys(valkey.unit(board.name))

    async def put(self, standings: Sequence[MemberScores]) -> bool:
        """Write members' scores, each in its day, week and month in one step; return whether the copy is complete."""
        grouped: dict[Windows, tuple[list[Row], list[Row], list[Row]]] = defaultdict(lambda: ([], [], []))
        for standing in standings:
            for rows, score in zip(grouped[standing.windows], standing.scores, strict=True):
                # A window that is gone gets no row, so that its keys are not created again.
                if score is not None:
                    rows.append(_row(score))
        replies = await run_together(self._valkey, [self._put_call(*group) for group in grouped.items()])
        # Every reply says so, and an incomplete copy is noticed with the next event.
        return all(is_whole for *_, is_whole in replies)

    async def top(self, window: Window, most: int) -> WindowRanks | None:
        """Return the first members of a window; None if the copy is incomplete."""
        reply = await _top(
            self._valkey,
            scores=self._keys.scores(window),
            epoch=self._keys.epoch,
            calendar=self.board.timezone,
            most=most,
        )
        match reply:
            case [b"top", total, some]:
                return WindowRanks(total=total, entries=_members(1, some))
            case [b"not_whole"]:
                return None
            case _:
                raise ContractBroken(f"top.lua replied {reply!r}")

    async def around(self, window: Window, member: str, neighbours: int) -> WindowRanks | None:
        """Return a member with its neighbours; None if the copy is incomplete."""
        reply = await _around(
            self._valkey,
            scores=self._keys.scores(window),
            places=self._keys.places(window),
            epoch=self._keys.epoch,
            calendar=self.board.timezone,
            member=member,
            neighbours=neighbours,
        )
        match reply:
            case [b"around", total, first, some]:
                return WindowRanks(total=total, entries=_members(first + 1, some))
            case [b"absent", total]:
                return WindowRanks(total=total, entries=[])
            case [b"not_whole"]:
                return None
            case _:
                raise ContractBroken(f"around.lua replied {reply!r}")

    async def is_whole(self) -> bool:
        """Return whether all scores of SQL were written here, by the same calendar, and not lost since."""
        return await self._valkey.execute("GET", self._keys.epoch) == self.board.timezone.encode()

    async def begin(self, builder: str) -> None:
        """Record that `builder` begins to rebuild the copy."""
        building, for_ms = self._keys.building(builder), milliseconds(_ASIDE_FOR)
        await self._valkey.execute("SET", building, "1", "PX", for_ms)

    async def declare_whole(self, builder: str) -> bool:
        """Record that the copy is complete; return False if the server lost its data since `builder` began."""
        keys = self._keys
        declared = await _declare(
            self._valkey, epoch=keys.epoch, building=keys.building(builder), calendar=self.board.timezone
        )
        return declared == 1

    async def fill(self, window: Window, scores: Sequence[Score], *, builder: str | None = None) -> None:
        """Write scores to a window, or to the one that `builder` prepares."""
        keys, kept_for = self._keys, milliseconds(window.kept_until - window.starts_at)
        await _fill(
            self._valkey,
            scores=keys.scores(window) if builder is None else keys.aside(window, builder),
            places=keys.places(window) if builder is None else keys.aside_places(window, builder),
            rows=[_row(score) for score in scores],
            until_ms=to_ms(window.kept_until),
            # A rebuild that dies leaves prepared keys behind, which expire.
            at_most_ms=kept_for if builder is None else milliseconds(_ASIDE_FOR),
            now_ms=self._clock.pinned_ms,
        )

    async def swap(self, window: Window, builder: str) -> None:
        """Replace a window by the one that `builder` prepared."""
        await _swap(
            self._valkey,
            scores=self._keys.scores(window),
            places=self._keys.places(window),
            aside=self._keys.aside(window, builder),
            aside_places=self._keys.aside_places(window, builder),
            until_ms=to_ms(window.kept_until),
            now_ms=self._clock.pinned_ms,
        )

    async def empty(self, window: Window) -> None:
        """Delete a window without members."""
        await self._valkey.execute("UNLINK", self._keys.scores(window), self._keys.places(window))

    def _put_call(self, windows: Windows, rows: tuple[list[Row], list[Row], list[Row]]) -> Any:
        day, week, month = windows
        return _put.bind(
            day=self._keys.scores(day),
            day_places=self._keys.places(day),
            week=self._keys.scores(week),
            week_places=self._keys.places(week),
            month=self._keys.scores(month),
            month_places=self._keys.places(month),
            epoch=self._keys.epoch,
            calendar=self.board.timezone,
            day_until=to_ms(day.kept_until),
            week_until=to_ms(week.kept_until),
            month_until=to_ms(month.kept_until),
            rows=rows,
            now_ms=self._clock.pinned_ms,
        )


def _row(score: Score) -> Row:
    reached_us = (score.reached_at - _EPOCH) // timedelta(microseconds=1)
    # Of equal scores, the one reached first is ahead. The server sorts equal scores by name, so the inverted time in
    # hexadecimal digits is put in front of the member.
    return score.member, f"{_LATEST - reached_us:0{_PLACE_DIGITS}x}", score.score


def _members(first: int, flat: list[Any]) -> list[RankedMember]:
    """Strip the place in front of each member's id, which is only there for the order."""
    return [
        RankedMember(first + n, name[_PLACE_DIGITS:].decode(), int(score))
        for n, (name, score) in enumerate(zip(flat[::2], flat[1::2], strict=True))
    ]


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
            raise ValkeyUnavailable(f"the server lost its data while the board {board.name!r} was rebuilt")
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
