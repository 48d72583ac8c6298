"""Time of day for the simulated data. Tests pass a clock of their own."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Returns the current time."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.now(UTC)


def to_ms(moment: datetime) -> int:
    """Convert to milliseconds since the epoch."""
    return round(moment.timestamp() * 1000)


def from_ms(ms: int) -> datetime:
    """Convert milliseconds since the epoch to a time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)
