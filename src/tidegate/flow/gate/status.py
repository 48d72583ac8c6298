"""How a pool stands, for the operator and for the plan."""

import msgspec


class BucketStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One credential's allowance for one kind of call."""

    name: str
    held: int
    """Units of calls that are under way."""
    lost: int
    """Units of calls of this window whose fate is unknown; they count as spent."""
    calls_now: int
    limit: int | None = None
    remaining: int | None = None
    resets_in_ms: int | None = None
    opens_in_ms: int | None = None
    """When the next call may be made; None where that is now, or when a call under way ends."""
    reason: str | None = None
    """Why no call may be made now: blocked, retired, concurrency, minute, probing, exhausted."""


class CredentialStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One credential."""

    name: str
    in_flight: int
    concurrency: int
    retired: bool
    blocked_in_ms: int
    buckets: list[BucketStatus]


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: who serves it, and how many jobs wait for which bucket."""

    credentials: list[CredentialStatus]
    waiting: dict[str, int]


def read_status(packed: bytes) -> PoolStatus:
    """Decode what `status.lua` replied. Lua has one kind of table: an empty one arrives as a list."""
    raw = msgspec.msgpack.decode(packed)
    raw["waiting"] = dict(raw["waiting"])
    return msgspec.convert(raw, PoolStatus, strict=False)
