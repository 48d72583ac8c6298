"""Formats numbers, times and durations for display, and parses durations and times from command-line options."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from tidegate.core.errors import InvalidArgument

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def number(value: float) -> str:
    """`12,345`; decimals only for values below one: `0.4`."""
    return f"{value:,.1f}" if 0 < value < 10 and value != int(value) else f"{value:,.0f}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 call`, `2 calls`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def span(seconds: float) -> str:
    """`8 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{round(whole / _MINUTE)} min"
    if whole < _DAY:
        hours, rest = divmod(whole // _MINUTE, 60)
        return f"{hours} h {rest:02} min"
    days, rest = divmod(whole // _HOUR, 24)
    return f"{days} d {rest} h"


def exact_span(seconds: float) -> str:
    """`0.25 s`, `1.5 s`, and from one minute on like `span`; for configured values, which must not become `0 s`."""
    return f"{round(seconds, 3):g} s" if seconds < _MINUTE else span(seconds)


def clock(moment: datetime, now: datetime) -> str:
    """Time in the local time zone, with the day unless it is today: `14:02:10`, `Mar 3 14:02`."""
    here, today = moment.astimezone(), now.astimezone()
    if here.date() == today.date():
        return f"{here:%H:%M:%S}"
    return f"{here:%b} {here.day} {here:%H:%M}" if here.year == today.year else f"{here:%Y-%m-%d %H:%M}"


def subject_name(user_id: str, login: str) -> str:
    """Display name of a subject: `octocat`, or for a crawl its name and host, `daily (shop.example)`."""
    return login if user_id == login else f"{user_id} ({login})"


def listed(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c`, or `a, b, c and 7 more`."""
    all_names = list(names)
    more = len(all_names) - most
    return ", ".join(all_names[:most]) + (f" and {number(more)} more" if more > 0 else "")


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
