"""Time as a collaborator.

Every atomic step on Valkey uses the server's clock, so a process whose clock is wrong cannot break a limit. Python code
that needs the time of day (rows, logs) asks a `Clock`; tests hand in one that stands still until told.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time; says whether scripts must use it instead of the server's."""

    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        ...

    @property
    def pinned_ms(self) -> int | None:
        """What scripts take for now, in ms since the epoch; None lets the server decide."""
        ...


class SystemClock:
    """The machine's clock for rows and logs, the server's for scripts."""

    def now(self) -> datetime:
        """The present moment by this machine."""
        return datetime.now(UTC)

    @property
    def pinned_ms(self) -> None:
        """Always None: scripts use the server's time."""
        return


class ManualClock:
    """Stands still until `advance`d; pins the scripts' time too. For tests and simulations."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        """The moment it was last moved to."""
        return self._now

    @property
    def pinned_ms(self) -> int:
        """The same moment, for scripts."""
        return to_ms(self._now)

    def advance(self, by: timedelta) -> None:
        """Move on."""
        self._now += by


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch."""
    return round(moment.timestamp() * 1000)


def from_ms(ms: int) -> datetime:
    """The moment `ms` milliseconds after the epoch, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def milliseconds(span: timedelta) -> int:
    """A span of time in whole milliseconds."""
    return round(span.total_seconds() * 1000)


def monotonic_ms() -> float:
    """A clock that only ever goes forward, for measuring spans within one process."""
    return time.monotonic() * 1000
