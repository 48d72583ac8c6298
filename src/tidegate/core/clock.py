"""Clocks as a dependency.

Every atomic step on Valkey uses the server's clock, so a process with a wrong clock cannot break a limit. Python code
that needs the time of day (rows, logs) uses a `Clock`; tests pass a `ManualClock`.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The time of day, and the time that scripts use."""

    def now(self) -> datetime:
        """The current time, timezone-aware, in UTC."""
        ...

    @property
    def pinned_ms(self) -> int | None:
        """The time that scripts use, in ms since the epoch; None means the server's time."""
        ...


class SystemClock:
    """The machine's clock for rows and logs, the server's for scripts."""

    def now(self) -> datetime:
        """The current time of this machine."""
        return datetime.now(UTC)

    @property
    def pinned_ms(self) -> None:
        """Always None: scripts use the server's time."""
        return


class ManualClock:
    """A clock that only `advance` moves; scripts use it too. For tests and simulations."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """The time to which the clock was set last."""
        return self._now

    @property
    def pinned_ms(self) -> int:
        """The same time, for scripts."""
        return to_ms(self._now)

    def advance(self, by: timedelta) -> None:
        """Move the clock forward."""
        self._now += by


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch."""
    return round(moment.timestamp() * 1000)


def from_ms(ms: int) -> datetime:
    """The time `ms` milliseconds after the epoch, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def milliseconds(span: timedelta) -> int:
    """A span of time in whole milliseconds."""
    return round(span.total_seconds() * 1000)


def monotonic_ms() -> float:
    """A clock that never goes back, for measuring durations within one process."""
    return time.monotonic() * 1000
