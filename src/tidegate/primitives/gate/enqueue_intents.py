"""Enqueue intents: recorded before jobs are committed, confirmed after they were enqueued in the gate.

An intent that expires unconfirmed triggers a recovery, because its process may have died between the two steps. The
death of a member process is detected anyway, but commands and processes that have not joined yet also start runs.
"""

from datetime import timedelta

from tidegate.core.clock import Clock, milliseconds
from tidegate.core.ids import new_id
from tidegate.primitives.gate.scripts import promise_keys
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script

FIRST_LOOK = timedelta(seconds=10)
_MOST_LOOKS = 6
"""The pause doubles each time, so the last check is five minutes after the intent: no commit takes that long."""


@lua_script("record_intent.lua")
async def _promise(
    valkey: Valkey, *, promises: Key, wake: Key, promise: str, look_ms: int, now_ms: int | None
) -> int: ...


@lua_script("expired_intents.lua")
async def _broken(
    valkey: Valkey, *, promises: Key, looks: Key, first_ms: int, most: int, now_ms: int | None
) -> list[int]: ...


class EnqueueIntents:
    """The intents of one gate. `record` wakes its timekeeper if the intent expires before all others."""

    def __init__(self, valkey: Valkey, unit: Unit, *, wake: Key, clock: Clock) -> None:
        self._valkey, self._wake, self._clock = valkey, wake, clock
        self._promises, self._looks = promise_keys(unit)

    async def record(self, look_after: timedelta | None = None) -> str:
        """Record that jobs are committed next. Without a confirmation, recovery runs after `look_after`."""
        promise, look_ms = new_id(), milliseconds(FIRST_LOOK if look_after is None else look_after)
        await _promise(
            self._valkey,
            promises=self._promises,
            wake=self._wake,
            promise=promise,
            look_ms=look_ms,
            now_ms=self._clock.pinned_ms,
        )
        return promise

    async def confirm(self, promise: str) -> None:
        """Remove an intent: its jobs were enqueued, or never committed."""
        await self._valkey.pipeline([("ZREM", self._promises, promise), ("HDEL", self._looks, promise)])

    async def expired(self) -> tuple[int, int | None]:
        """Return the number of expired intents, and the ms until the next one expires; None if there are no others."""
        due, next_in_ms = await _broken(
            self._valkey,
            promises=self._promises,
            looks=self._looks,
            first_ms=milliseconds(FIRST_LOOK),
            most=_MOST_LOOKS,
            now_ms=self._clock.pinned_ms,
        )
        return due, next_in_ms if next_in_ms >= 0 else None
