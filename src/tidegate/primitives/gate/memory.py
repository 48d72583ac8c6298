"""What is remembered elsewhere of a pool: a gate that lost its data need not find it out by breaking a rule."""

import msgspec


class LearnedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What refusals taught of a credential: how much it may do, and how that recovers."""

    concurrency: int
    """Calls at once, when it begins to recover."""
    per_minute: int
    """Calls in a minute, when it begins to recover."""
    begins_in_ms: int
    """When it begins to recover; less than 0 where it has begun."""
    every_ms: int
    """The length of a step: after each it may do a little more."""
    ends_in_ms: int
    """When it has recovered."""


class CredentialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the upstream last said of a credential: that little is left of a window, or that it must rest."""

    credential: str
    bucket: str
    blocked_ms: int = 0
    """For how much longer it must rest."""
    rests_bucket: bool = False
    """That rest is about `bucket` only."""
    limit: int | None = None
    remaining: int | None = None
    window: int | None = None
    """As in `Allowance`; where it is None, nothing is known of the window."""
    resets_in_ms: int | None = None
    learned: LearnedLimits | None = None


class PoolRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one pool."""

    pool: str
    started: int
    """Calls that were begun in the last minute."""
    running: int
    """Calls that may be under way."""
    notes: list[CredentialRecord]
