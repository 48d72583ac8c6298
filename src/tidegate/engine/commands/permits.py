"""What credentials may still do, and why somebody waits for one."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from tidegate.cli.wording import clock, number
from tidegate.engine.commands.forecast import Supply
from tidegate.primitives.gate import BucketStatus, CredentialLimits, CredentialStatus, PoolStatus


class Permits(msgspec.Struct, frozen=True, kw_only=True):
    """One credential's allowance for one kind of call, as people want to know it."""

    credential: str
    """Whose it is, in words."""
    bucket: str
    limit: int | None
    left: int | None
    """Calls that the upstream would still answer, less those under way; None: nobody knows before the first call."""
    in_flight: int
    resets_at: datetime | None
    opens_at: datetime | None
    """When the next call may be made, where that is not now."""
    reason: str | None
    """Why none may be made now."""

    @property
    def is_lost(self) -> bool:
        """Whether the upstream refuses this credential for good."""
        return self.reason == "retired"


def permits_of(status: PoolStatus, labels: Mapping[str, str], now: datetime) -> list[Permits]:
    """The allowances of a pool's credentials; one that was never used has none yet, and is in it all the same."""
    return [
        _permits(one, bucket, labels.get(one.name, one.name), now)
        for one in status.credentials
        for bucket in one.buckets or [BucketStatus(name="core", held=0, lost=0, calls_now=0)]
    ]


def waits(permits: Sequence[Permits], now: datetime) -> list[str]:
    """Why calls wait: `token of octocat: 0 left, opens 14:02:10`."""
    return [f"{named(one)}: {why}" for one in permits if (why := _why(one, now)) is not None]


def named(one: Permits) -> str:
    """Whose it is, and for which calls, where those are not the usual ones."""
    return one.credential if one.bucket == "core" else f"{one.credential} ({one.bucket})"


def told(one: Permits, now: datetime) -> str:
    """What is left, in a few words."""
    if one.is_lost:
        return "not accepted any more"
    if one.left is None:
        return "not known before the first call"
    of = f" of {number(one.limit)}" if one.limit is not None else ""
    ends = f", window ends {clock(one.resets_at, now)}" if one.resets_at is not None else ""
    return f"{number(one.left)}{of} left{ends}"


def supplies(status: PoolStatus, bucket: str, limits: CredentialLimits) -> list[Supply]:
    """What the credentials of a pool can give of one bucket; those of which nothing is known are left out."""
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
            return f"{number(one.left)} left are kept in reserve, opens{opens}"
        case "exhausted":
            return f"0 left, opens{opens}"
        case "blocked":
            return f"asked to rest, goes on{opens}"
        case "minute":
            return f"as many calls in a minute as it may make, goes on{opens}"
        case "retired":
            return "not accepted any more"
        case _:  # what ends with a call under way is no wait worth telling
            return None


def _supply(one: CredentialStatus, bucket: BucketStatus, limits: CredentialLimits) -> Supply:
    limit = bucket.limit or 0
    floor = limits.floor_of(limit)
    spendable = max(0, (bucket.remaining or 0) - bucket.held - bucket.lost - floor)
    # A window that nobody has opened yet begins with its first call.
    window_s = limits.window.total_seconds()
    opens_in_s = window_s if bucket.resets_in_ms is None else bucket.resets_in_ms / 1000
    if one.blocked_in_ms:  # whatever is left is there again when the pause is over
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
