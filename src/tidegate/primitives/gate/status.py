"""The status of a pool: its credentials, and what each of them may still call."""

from operator import itemgetter

import msgspec


class BucketStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One credential's allowance for one kind of call."""

    name: str
    held: int
    """Units of calls that are under way."""
    lost: int
    """Units of calls of this window with an unknown outcome; they count as spent."""
    calls_now: int
    limit: int | None = None
    remaining: int | None = None
    resets_in_ms: int | None = None
    opens_in_ms: int | None = None
    """When the next call may be made; None where that is now, or when a call under way ends."""
    reason: str | None = None
    """Why no call may be made now: blocked, retired, concurrency, minute, probing, exhausted."""
    rests_in_ms: int = 0
    """For how much longer the credential rests in this bucket only."""
    health: float = 1.0
    """How well it is received here, up to 1: each rest halves it; answers, and half an hour, heal it."""


class CredentialStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state and limits of one credential."""

    name: str
    in_flight: int
    concurrency: int
    """As it was set."""
    concurrency_now: int
    """Less after refusals; it recovers slowly."""
    per_minute: int
    """As it was set."""
    per_minute_now: int
    """Less after refusals; it recovers slowly."""
    retired: bool
    blocked_in_ms: int
    buckets: list[BucketStatus]


class PaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a bucket is called, by all credentials together."""

    bucket: str
    gap_ms: int
    """As it was set."""
    gap_now_ms: int
    """Longer where few credentials are left that need not rest."""
    one_at_a_time: bool
    healthy: int
    """Credentials that are neither retired nor resting here."""
    is_out: bool
    """Whether a call is under way of which the others wait to see the end."""
    rests_in_ms: int
    """For how much longer no call may be made."""
    opens_in_ms: int | None = None
    """When the next call may be made, as far as the pace goes; None while one is out."""


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: its credentials, and how many jobs wait for each bucket."""

    credentials: list[CredentialStatus]
    waiting: dict[str, int]
    paces: list[PaceStatus] = []
    """Of the buckets that were called, or that jobs wait for."""


def read_status(packed: bytes) -> PoolStatus:
    """Decode what `status.lua` replied. Lua has one kind of table: an empty one arrives as a list."""
    raw = msgspec.msgpack.decode(packed)
    raw["waiting"] = dict(raw["waiting"])
    raw["paces"].sort(key=itemgetter("bucket"))
    return msgspec.convert(raw, PoolStatus, strict=False)
