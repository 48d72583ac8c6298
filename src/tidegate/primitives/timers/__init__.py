"""Timers: each becomes a message in a stream when it is due, never before.

A due time is a delay (`timedelta`) or a point in time (`datetime`). Both are evaluated by the server's clock: a delay
starts when the server receives it. So the clocks of the processes do not matter, and no timer is early. A time in the
past is due at once, as a retry after a long outage needs it; a negative delay is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tidegate.core.arguments import require_at_most, require_name, require_not_negative
from tidegate.core.clock import Clock, SystemClock, from_ms
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import DELAYED_QUEUE_SIZE, TIMER_LATENESS, TIMERS_PROMOTED
from tidegate.primitives.settings import TimerSettings
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script
from tidegate.storage.valkey.scripts import as_text

__all__ = ["Due", "Timer", "TimerKeys", "TimerSettings", "Timers", "TimersStatus"]


class TimerKeys:
    """Keys of one set of timers."""

    def __init__(self, unit: Unit, name: str) -> None:
        self.due: Key = unit.key(f"{name}:due")
        """zset: timer id scored by its due time in ms."""
        self.payloads: Key = unit.key(f"{name}:payloads")
        """hash: timer id -> payload of its message."""
        self.wake: Key = unit.key("wake")
        """list: the wake-up of the unit, at most one token."""


log = get_logger(__name__)

Due = timedelta | datetime
"""A delay, or a timezone-aware time."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_MS = timedelta(milliseconds=1)
_LONGEST_DELAY = timedelta(days=36525)
_LARGEST_PAYLOAD = 1_048_576
_LARGEST_BATCH = 10_000


@dataclass(frozen=True)
class Timer:
    """A timer to schedule."""

    timer_id: str
    due: Due
    payload: bytes = b""

    def __post_init__(self) -> None:
        require_name("timer_id", self.timer_id)
        require_at_most("len(payload)", len(self.payload), _LARGEST_PAYLOAD)
        _require_due(self.due)


@dataclass(frozen=True)
class TimersStatus:
    """Number of waiting timers, and when the first one is due."""

    count: int
    earliest: datetime | None


@lua_script("schedule.lua")
async def _schedule(
    valkey: Valkey, *, due: Key, payloads: Key, wake: Key, batch: list[Any], now_ms: int | None
) -> int: ...


@lua_script("reschedule.lua")
async def _reschedule(
    valkey: Valkey, *, due: Key, wake: Key, timer_id: str, kind: str, ms: int, now_ms: int | None
) -> int: ...


@lua_script("cancel.lua")
async def _cancel(valkey: Valkey, *, due: Key, payloads: Key, timer_ids: list[str]) -> int: ...


@lua_script("fire.lua")
async def _fire(
    valkey: Valkey, *, due: Key, payloads: Key, stream: Key, most: int, now_ms: int | None
) -> tuple[list[int], int, int]: ...


@lua_script("status.lua")
async def _status(valkey: Valkey, *, due: Key) -> tuple[int, int]: ...


class Timers:
    """A set of timers that feeds one stream of the same unit.

    Any process schedules and cancels; the timekeeper fires. Each timer becomes one message `{timer, due_ms, payload}`.
    Its handler should be idempotent by timer id: after a broken connection `schedule` is sent again, although the timer
    may have fired meanwhile.

    Example:
        unit = valkey.unit("mail")
        timers = Timers(valkey, unit, unit.key("reminders"))
        await timers.schedule("remind-ada", timedelta(hours=1), b"ada")
        await timers.cancel("remind-ada")
    """

    def __init__(
        self,
        valkey: Valkey,
        unit: Unit,
        stream: Key,
        *,
        name: str = "timers",
        clock: Clock | None = None,
        settings: TimerSettings | None = None,
        shown_as: str | None = None,
    ) -> None:
        """`shown_as` is its name in metrics and logs, where timers of several units have the same name."""
        # The beginning that all keys of the unit share.
        if not stream.startswith(unit.key("x").removesuffix("x")):
            raise InvalidArgument("stream", stream, f"must be a key of the unit {unit.name!r}, to be fed in one step")
        self.name, self.keys, self.stream = shown_as or name, TimerKeys(unit, name), stream
        self.wakeup = Wakeup(valkey, self.keys.wake)
        self._valkey = valkey
        self._clock = clock or SystemClock()
        self._settings = settings or TimerSettings()

    def __repr__(self) -> str:
        return f"Timers({self.keys.due!r})"

    async def schedule(self, timer_id: str, due: Due, payload: bytes = b"") -> None:
        """Schedule a timer; a timer with the same id is replaced."""
        await self.schedule_many([Timer(timer_id, due, payload)])

    async def schedule_many(self, timers: Sequence[Timer]) -> int:
        """Schedule timers in one atomic step. Returns how many are new; of two with the same id, the last counts."""
        require_at_most("len(timers)", len(timers), _LARGEST_BATCH)
        if not timers:
            return 0
        batch = [[timer.timer_id, *self._encode(timer.due), as_text(timer.payload)] for timer in timers]
        keys = self.keys
        return await _schedule(
            self._valkey,
            due=keys.due,
            payloads=keys.payloads,
            wake=keys.wake,
            batch=batch,
            now_ms=self._clock.pinned_ms,
        )

    async def reschedule(self, timer_id: str, due: Due) -> bool:
        """Move an existing timer. Returns False if there is none: it fired, was cancelled or never existed."""
        require_name("timer_id", timer_id)
        _require_due(due)
        kind, ms = self._encode(due)
        keys = self.keys
        moved = await _reschedule(
            self._valkey,
            due=keys.due,
            wake=keys.wake,
            timer_id=timer_id,
            kind=kind,
            ms=ms,
            now_ms=self._clock.pinned_ms,
        )
        return bool(moved)

    async def cancel(self, *timer_ids: str) -> int:
        """Cancel timers. Returns how many were waiting; the others have fired or never existed."""
        require_at_most("len(timer_ids)", len(timer_ids), _LARGEST_BATCH)
        ids = [require_name("timer_id", timer_id) for timer_id in timer_ids]
        if not ids:
            return 0
        return await _cancel(self._valkey, due=self.keys.due, payloads=self.keys.payloads, timer_ids=ids)

    async def fire(self) -> int | None:
        """Promote a bounded batch of due timers. Returns in how many ms to call again, None if no timer waits.

        0 means that more timers are due. Any number of processes may call it at any time.
        """
        keys = self.keys
        lateness, wait_ms, left = await _fire(
            self._valkey,
            due=keys.due,
            payloads=keys.payloads,
            stream=self.stream,
            most=self._settings.promoted_at_once,
            now_ms=self._clock.pinned_ms,
        )
        self._record(lateness, left)
        return None if wait_ms < 0 else wait_ms

    async def status(self) -> TimersStatus:
        """Number of waiting timers, and when the first one is due."""
        count, earliest_ms = await _status(self._valkey, due=self.keys.due)
        return TimersStatus(count, None if earliest_ms < 0 else from_ms(earliest_ms))

    def _encode(self, due: Due) -> tuple[str, int]:
        """Whole milliseconds, rounded up: a timer may be late by a fraction of one, never early."""
        if isinstance(due, datetime):
            return "at", _whole_ms(due - _EPOCH)
        # The server's time is truncated to whole milliseconds; a delay from there could end a fraction too early.
        cut = 1 if due and self._clock.pinned_ms is None else 0
        return "in", _whole_ms(due) + cut

    def _record(self, lateness: list[int], left: int) -> None:
        DELAYED_QUEUE_SIZE.labels(self.name).set(left)
        if not lateness:
            return
        TIMERS_PROMOTED.labels(self.name).inc(len(lateness))
        for late_ms in lateness:
            TIMER_LATENESS.observe(late_ms / 1000)
        log.debug("timers.promoted", queue=self.name, timers=len(lateness), late_ms=lateness[0], left=left)


def _whole_ms(span: timedelta) -> int:
    return -(-span // _ONE_MS)


def _require_due(due: Due) -> None:
    if isinstance(due, datetime):
        if due.tzinfo is None:
            raise InvalidArgument("due", due, "must say its time zone")
        require_not_negative("due since 1970", (due - _EPOCH).total_seconds())
    else:
        require_not_negative("due", due.total_seconds())
        require_at_most("due in days", due.days, _LONGEST_DELAY.days)
