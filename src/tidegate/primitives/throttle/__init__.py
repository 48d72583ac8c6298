"""Limit how often each of many subjects does something, over all processes together."""

from datetime import timedelta
from typing import Any

from tidegate.core.arguments import require_name, require_positive, require_whole
from tidegate.core.clock import Clock, SystemClock, milliseconds
from tidegate.storage.valkey import Key, Valkey, lua_script


class ThrottleKeys:
    """Where a throttle keeps what its subjects have used. Both keys expire when every allowance is complete again."""

    def __init__(self, valkey: Valkey, name: str) -> None:
        unit = valkey.unit(f"throttle:{name}")
        self.subjects: Key = unit.key("subjects")
        """zset, bounded: subject scored by the ms at which its allowance is complete again."""
        self.items: Key = unit.key("items")
        """zset, bounded: item that was counted, scored by when it is forgotten."""


MOST_BURST = 1_000_000
_MOST_SUBJECTS = 100_000


@lua_script("take.lua")
async def _take(
    valkey: Valkey,
    *,
    subjects: Key,
    items: Key,
    subject: str,
    item: str,
    burst: int,
    interval_ms: int,
    most: int,
    now_ms: int | None,
) -> list[Any]: ...


@lua_script("give_back.lua")
async def _give_back(
    valkey: Valkey, *, subjects: Key, items: Key, subject: str, item: str, interval_ms: int
) -> int: ...


class Throttle:
    """Each subject has `burst` items at once, and one more after each `interval`.

    Memory is bounded: entries expire when an allowance is complete again, and of more than `most_subjects` those that
    are complete soonest are removed.

        throttle = Throttle(valkey, "visitors", burst=20, interval=timedelta(seconds=5))
        wait = await throttle.take("192.0.2.1", visitor_id)
        if wait is not None:
            ...  # refused; try again after `wait`

    Raises `Unavailable` while the server is away or refuses; the caller decides what that means.
    """

    def __init__(
        self,
        valkey: Valkey,
        name: str,
        *,
        burst: int,
        interval: timedelta,
        most_subjects: int = _MOST_SUBJECTS,
        clock: Clock | None = None,
    ) -> None:
        require_whole("burst", burst, least=1, most=MOST_BURST)
        require_positive("interval", interval.total_seconds())
        require_whole("most_subjects", most_subjects, least=1, most=10**7)
        self._valkey, self._keys, self._clock = valkey, ThrottleKeys(valkey, name), clock or SystemClock()
        self._burst, self._interval_ms, self._most = burst, max(1, milliseconds(interval)), most_subjects

    async def take(self, subject: str, item: str) -> timedelta | None:
        """Count `item` of `subject`. Returns None where that is allowed, otherwise how long to wait.

        The same item is counted once while it is remembered, so a repeated request costs nothing.
        """
        reply = await _take(
            self._valkey,
            subjects=self._keys.subjects,
            items=self._keys.items,
            subject=require_name("subject", subject),
            item=require_name("item", item),
            burst=self._burst,
            interval_ms=self._interval_ms,
            most=self._most,
            now_ms=self._clock.pinned_ms,
        )
        return None if reply[0] == b"granted" else timedelta(milliseconds=int(reply[1]))

    async def give_back(self, subject: str, item: str) -> bool:
        """Undo the counting of `item`; True for the one call that did."""
        undone = await _give_back(
            self._valkey,
            subjects=self._keys.subjects,
            items=self._keys.items,
            subject=require_name("subject", subject),
            item=require_name("item", item),
            interval_ms=self._interval_ms,
        )
        return bool(undone)
