"""The allowances of credentials as text, why calls wait, and how long a number of calls takes.

`forecast` is a pure computation without a clock.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush

import msgspec

from tidegate.cli.wording import clock, number
from tidegate.core.arguments import require_not_negative
from tidegate.primitives.gate import BucketStatus, CredentialLimits, CredentialStatus, PoolStatus

ASSUMED_LATENCY_S = 0.5
"""Assumed duration of a call before the first one was measured."""


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that one credential can make."""

    now: int
    """Calls left in the current window."""
    per_window: int
    """Calls in each later window."""
    opens_in_s: float
    """When the next window opens."""
    window_s: float
    per_minute: int
    concurrency: int


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The estimated duration of a number of calls."""

    seconds: float
    windows: int = 0
    """How many further windows are needed."""
    waits: int = 0
    """How often all credentials are exhausted until the next window opens."""
    first_wait_s: float | None = None
    """When the first of these waits ends, in seconds from now."""


class _CallPace:
    """The rate of calls: a token bucket that holds the calls of one minute."""

    def __init__(self, supplies: Sequence[Supply], seen_per_s: float | None) -> None:
        allowed = sum(supply.per_minute for supply in supplies)
        self._steady_per_s = allowed / 60
        self._most_per_s = seen_per_s or sum(supply.concurrency for supply in supplies) / ASSUMED_LATENCY_S
        self._most_at_once = self._at_once = float(allowed)

    def seconds_for(self, calls: int) -> float:
        """How long `calls` calls take now."""
        at_once = min(calls, self._at_once)
        self._at_once -= at_once
        return at_once / self._most_per_s + (calls - at_once) / min(self._steady_per_s, self._most_per_s)

    def rest(self, seconds: float) -> None:
        """Refill the bucket after a time without calls."""
        self._at_once = min(self._most_at_once, self._at_once + seconds * self._steady_per_s)


def forecast(calls: int, supplies: Sequence[Supply], *, calls_per_s: float | None = None) -> Forecast | None:
    """Estimate how long `calls` calls take. None if no credential can make them.

    `calls_per_s` is the measured rate; without it, `ASSUMED_LATENCY_S` is used. The estimate assumes that no other
    client uses the same credentials, and that each window opens when the previous one ends.
    """
    require_not_negative("calls", calls)
    useful = [supply for supply in supplies if supply.per_window > 0]
    if not useful:
        return None
    pace, there = _CallPace(useful, calls_per_s), sum(supply.now for supply in useful)
    left, at = calls - there, pace.seconds_for(min(calls, there))
    windows, waits, first_wait_s = 0, 0, None
    openings = [(supply.opens_in_s, index) for index, supply in enumerate(useful)]
    heapify(openings)
    while left > 0:
        opens_in_s, index = heappop(openings)
        if opens_in_s > at:
            pace.rest(opens_in_s - at)
            waits, first_wait_s = waits + 1, opens_in_s if first_wait_s is None else first_wait_s
        granted, windows = min(left, useful[index].per_window), windows + 1
        left, at = left - granted, max(at, opens_in_s) + pace.seconds_for(granted)
        heappush(openings, (opens_in_s + useful[index].window_s, index))
    return Forecast(seconds=at, windows=windows, waits=waits, first_wait_s=first_wait_s)


class Permits(msgspec.Struct, frozen=True, kw_only=True):
    """The allowance of one credential in one bucket, for display."""

    credential: str
    """Display name of the credential."""
    bucket: str
    limit: int | None
    left: int | None
    """Remaining calls minus the calls in flight; None before the first call."""
    in_flight: int
    resets_at: datetime | None
    opens_at: datetime | None
    """When the next call can be made; None if a call can be made now."""
    reason: str | None
    """Why no call can be made now."""

    @property
    def is_lost(self) -> bool:
        """Whether the upstream rejects this credential."""
        return self.reason == "retired"


def permits_of(status: PoolStatus, labels: Mapping[str, str], now: datetime) -> list[Permits]:
    """The allowances of a pool's credentials. A credential that was never used is included with unknown numbers."""
    return [
        _permits(one, bucket, labels.get(one.name, one.name), now)
        for one in status.credentials
        for bucket in one.buckets or [BucketStatus(name="core", held=0, lost=0, calls_now=0)]
    ]


def wait_reasons(permits: Sequence[Permits], now: datetime) -> list[str]:
    """The reasons why calls wait, such as `token of octocat: 0 left, opens 14:02:10`."""
    return [f"{permit_label(one)}: {why}" for one in permits if (why := _why(one, now)) is not None]


def permit_label(one: Permits) -> str:
    """The credential, with the bucket if it is not `core`."""
    return one.credential if one.bucket == "core" else f"{one.credential} ({one.bucket})"


def permit_text(one: Permits, now: datetime) -> str:
    """The remaining calls as text."""
    if one.is_lost:
        return "rejected by the upstream"
    if one.left is None:
        return "not known before the first call"
    of = f" of {number(one.limit)}" if one.limit is not None else ""
    ends = f", window ends {clock(one.resets_at, now)}" if one.resets_at is not None else ""
    return f"{number(one.left)}{of} left{ends}"


def supplies(status: PoolStatus, bucket: str, limits: CredentialLimits) -> list[Supply]:
    """The calls that the credentials of a pool can make in one bucket. Credentials with unknown limits are omitted."""
    return [
        _supply(one, found, limits)
        for one in status.credentials
        for found in one.buckets
        if found.name == bucket and not one.retired and found.limit is not None
    ]


def _permits(one: CredentialStatus, bucket: BucketStatus, label: str, now: datetime) -> Permits:
    return Permits(
        credential=label,
        bucket=bucket.name,
        limit=bucket.limit,
        left=None if bucket.remaining is None else max(0, bucket.remaining - bucket.held - bucket.lost),
        in_flight=one.in_flight,
        resets_at=_after(bucket.resets_in_ms, now),
        opens_at=_after(bucket.opens_in_ms, now) if bucket.opens_in_ms else None,
        reason="retired" if one.retired else bucket.reason,
    )


def _why(one: Permits, now: datetime) -> str | None:
    opens = f" {clock(one.opens_at, now)}" if one.opens_at is not None else " later"
    match one.reason:
        case "exhausted" if one.left:
            return f"{number(one.left)} left, kept in reserve, opens{opens}"
        case "exhausted":
            return f"0 left, opens{opens}"
        case "blocked":
            return f"blocked by the upstream, opens{opens}"
        case "minute":
            return f"limit of calls per minute reached, opens{opens}"
        case "retired":
            return "rejected by the upstream"
        case _:  # other waits end with a call in flight and are too short to be shown
            return None


def _supply(one: CredentialStatus, bucket: BucketStatus, limits: CredentialLimits) -> Supply:
    """Return the permits of a credential in a bucket, now and per window, for the forecast."""
    limit = bucket.limit or 0
    floor = limits.floor_of(limit)
    spendable = max(0, (bucket.remaining or 0) - bucket.held - bucket.lost - floor)
    # A window without calls starts with its first call.
    window_s = limits.window.total_seconds()
    opens_in_s = window_s if bucket.resets_in_ms is None else bucket.resets_in_ms / 1000
    if one.blocked_in_ms:  # the remaining calls are available again after the pause
        spendable, opens_in_s = 0, one.blocked_in_ms / 1000
    return Supply(
        now=spendable,
        per_window=limit - floor,
        opens_in_s=opens_in_s,
        window_s=window_s,
        per_minute=limits.per_minute,
        concurrency=1 if bucket.name in limits.one_at_a_time else limits.concurrency,
    )


def _after(ms: int | None, now: datetime) -> datetime | None:
    return None if ms is None else now + timedelta(milliseconds=ms)
