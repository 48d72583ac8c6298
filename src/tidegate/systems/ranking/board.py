"""A board on the Valkey server: a copy of the scores in SQL, in the order of the ranking.

It holds absolute scores, and one only gives way to a higher one. So whatever is told again, out of order or twice
changes nothing, and nothing about events is remembered here.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tidegate.core.clock import Clock, SystemClock, milliseconds, to_ms
from tidegate.core.errors import ContractBroken
from tidegate.storage.valkey import Key, Valkey, lua_script
from tidegate.storage.valkey.scripts import run_together
from tidegate.systems.ranking.keys import BoardKeys
from tidegate.systems.ranking.scores import Score, Standing
from tidegate.systems.ranking.settings import Board
from tidegate.systems.ranking.windows import Window, Windows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE_DIGITS = 13
"""Hexadecimal: microseconds until the year 2112."""
_LATEST = 16**_PLACE_DIGITS - 1
_ASIDE_FOR = timedelta(hours=1)
"""Longer than any board takes to be made anew."""

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


class Entry(msgspec.Struct, frozen=True):
    """A member in the order of a ranking."""

    rank: int
    """From 1; no two have the same."""
    member: str
    score: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a window."""

    total: int
    """Members in all."""
    entries: list[Entry]


class BoardCopy:
    """The copy of one board."""

    def __init__(self, valkey: Valkey, board: Board, clock: Clock | None = None) -> None:
        self._valkey, self.board, self._clock = valkey, board, clock or SystemClock()
        self._keys = BoardKeys(valkey.unit(board.name))

    async def put(self, standings: Sequence[Standing]) -> bool:
        """Put members where they stand, each in its day, week and month in one step. Whether the copy is whole."""
        grouped: dict[Windows, tuple[list[Row], list[Row], list[Row]]] = defaultdict(lambda: ([], [], []))
        for standing in standings:
            for rows, score in zip(grouped[standing.windows], standing.scores, strict=True):
                if score is not None:
                    rows.append(_row(score))
        replies = await run_together(self._valkey, [self._put_call(*group) for group in grouped.items()])
        return all(is_whole for *_, is_whole in replies)

    async def top(self, window: Window, most: int) -> Found | None:
        """The first members of a window; None where the copy is not whole."""
        reply = await _top(
            self._valkey,
            scores=self._keys.scores(window),
            epoch=self._keys.epoch,
            calendar=self.board.timezone,
            most=most,
        )
        match reply:
            case [b"top", total, some]:
                return Found(total=total, entries=_entries(1, some))
            case [b"not_whole"]:
                return None
            case _:
                raise ContractBroken(f"top.lua replied {reply!r}")

    async def around(self, window: Window, member: str, neighbours: int) -> Found | None:
        """Where a member is, with those around it; None where the copy is not whole."""
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
                return Found(total=total, entries=_entries(first + 1, some))
            case [b"absent", total]:
                return Found(total=total, entries=[])
            case [b"not_whole"]:
                return None
            case _:
                raise ContractBroken(f"around.lua replied {reply!r}")

    async def is_whole(self) -> bool:
        """Whether everything that SQL has was put here once, by the same calendar, and not lost since."""
        return await self._valkey.execute("GET", self._keys.epoch) == self.board.timezone.encode()

    async def begin(self, builder: str) -> None:
        """`builder` begins to make the copy anew."""
        building, for_ms = self._keys.building(builder), milliseconds(_ASIDE_FOR)
        await self._valkey.execute("SET", building, "1", "PX", for_ms)

    async def declare_whole(self, builder: str) -> bool:
        """Everything is here that SQL had when `builder` began; False where the server lost its data meanwhile."""
        keys = self._keys
        declared = await _declare(
            self._valkey, epoch=keys.epoch, building=keys.building(builder), calendar=self.board.timezone
        )
        return declared == 1

    async def fill(self, window: Window, scores: Sequence[Score], *, builder: str | None = None) -> None:
        """Put scores in one window; in the one that `builder` makes aside, where there is one."""
        keys, kept_for = self._keys, milliseconds(window.kept_until - window.starts_at)
        await _fill(
            self._valkey,
            scores=keys.scores(window) if builder is None else keys.aside(window, builder),
            places=keys.places(window) if builder is None else keys.aside_places(window, builder),
            rows=[_row(score) for score in scores],
            until_ms=to_ms(window.kept_until),
            at_most_ms=kept_for if builder is None else milliseconds(_ASIDE_FOR),
            now_ms=self._clock.pinned_ms,
        )

    async def swap(self, window: Window, builder: str) -> None:
        """Put what `builder` made aside in the place of the window."""
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
        """There is nobody in this window."""
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
    return score.member, f"{_LATEST - reached_us:0{_PLACE_DIGITS}x}", score.score


def _entries(first: int, flat: list[Any]) -> list[Entry]:
    """The place before each member's id has done its work: it is the order."""
    return [
        Entry(first + n, name[_PLACE_DIGITS:].decode(), int(score))
        for n, (name, score) in enumerate(zip(flat[::2], flat[1::2], strict=True))
    ]
