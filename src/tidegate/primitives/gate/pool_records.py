"""Records of a pool that are stored in SQL and restore a gate that lost its data."""

import msgspec


class LearnedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a credential that were learned from refusals, and their recovery."""

    concurrency: int
    """Maximum concurrent calls at the start of the recovery."""
    per_minute: int
    """Maximum calls per minute at the start of the recovery."""
    begins_in_ms: int
    """Ms until the recovery starts; negative after it has started."""
    every_ms: int
    """Ms between two steps of the recovery."""
    ends_in_ms: int
    """Ms until the recovery is complete."""


class CredentialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of the upstream about a credential: a low allowance of a window, or a block."""

    credential: str
    bucket: str
    blocked_ms: int = 0
    """Remaining ms of the block."""
    rests_bucket: bool = False
    """The block applies to `bucket` only."""
    limit: int | None = None
    remaining: int | None = None
    window: int | None = None
    """As in `Allowance`; None if the window is unknown."""
    resets_in_ms: int | None = None
    learned: LearnedLimits | None = None


class PoolRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of one pool."""

    pool: str
    started: int
    """Calls that were started in the last minute."""
    running: int
    """Calls that may be in progress."""
    notes: list[CredentialRecord]
