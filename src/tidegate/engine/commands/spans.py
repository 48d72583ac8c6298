"""Parses durations and points in time from command-line options."""

import re
from datetime import UTC, datetime, timedelta

from tidegate.core.errors import InvalidArgument

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LONGEST = timedelta(days=36_500)


def parse_span(name: str, written: str) -> timedelta:
    """Parse a duration such as `90s`, `10m`, `24h` or `7d`. Raises `InvalidArgument` if it is invalid."""
    found = _span(written)
    if found is None or found > _LONGEST:
        raise InvalidArgument(name, written, "must be a duration, such as 30s, 10m, 24h or 7d")
    return found


def parse_since(written: str, now: datetime, *, name: str = "since") -> datetime:
    """Parse a duration before `now`, or a date or time (ISO 8601); UTC unless it has a time zone."""
    span = _span(written)
    if span is not None and span <= _LONGEST:
        return now - span
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        reason = "must be a duration, such as 24h or 7d, or a date or time, such as 2026-01-31"
        raise InvalidArgument(name, written, reason) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _span(written: str) -> timedelta | None:
    match = _SPAN.fullmatch(written.strip().lower())
    if match is None or len(match[1]) > 12:
        return None
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
