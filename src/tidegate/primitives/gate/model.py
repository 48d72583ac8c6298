"""Values of the gate: jobs that enter it, dispatched jobs with their permits, settlements, and the status of a pool.

`PoolRecord` is what SQL stores of a pool; it restores a gate that lost its data.
"""

from collections.abc import Mapping
from enum import StrEnum
from operator import itemgetter
from typing import Self

import msgspec

from tidegate.core.arguments import require_name, require_whole
from tidegate.core.errors import InvalidArgument


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


LOWEST_PRIORITY = 9
_LARGEST_COST = 10**9
_LARGEST_PAYLOAD = 64 * 1024
"""Maximum length in characters. Larger data belongs into SQL, with its id in the job."""
LONGEST_MS = 31 * 24 * 3600 * 1000
_LARGEST_SAID = 10**15


class Job(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One call that waits for a permit."""

    job: str
    """The unique name of the job."""
    pool: str
    run: str
    """The run of the job: the runs of a pool take turns."""
    bucket: str = "core"
    priority: int = 5
    """0 is the most urgent, 9 the least; it takes precedence over turns."""
    cost: int = 1
    affinity: str = ""
    """The preferred credential, usually that of an earlier call."""
    excluded: tuple[str, ...] = ()
    """Credentials that must not execute the job. If that includes all of the pool, it is ignored, since the job would
    wait forever; so the caller must check again."""
    payload: str = ""
    delay_ms: int = 0

    def __post_init__(self) -> None:
        require_name("job", self.job)
        require_name("pool", self.pool)
        require_name("run", self.run)
        require_name("bucket", self.bucket)
        if self.affinity:
            require_name("affinity", self.affinity)
        for credential in self.excluded:
            require_name("excluded", credential)
        require_whole("cost", self.cost, least=1, most=_LARGEST_COST)
        require_whole("priority", self.priority, least=0, most=LOWEST_PRIORITY)
        require_whole("delay_ms", self.delay_ms, least=0, most=LONGEST_MS)
        if len(self.payload) > _LARGEST_PAYLOAD:
            raise InvalidArgument(
                "payload", f"{self.payload[:32]}…", f"must have at most {_LARGEST_PAYLOAD} characters"
            )


class Admitted(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A dispatched job with its permit, as it is in the stream."""

    message: str
    job: str
    permit: str
    credential: str
    bucket: str
    cost: int
    turned: int
    """The number of the credential's window that the permit belongs to, counted by the gate."""
    payload: str
    deliveries: int
    """1 for the first worker that gets it; more after it was taken over."""
    by: int = 0
    """When the request must be sent at the latest, in ms of the server's clock; 0 if unknown."""

    @classmethod
    def from_fields(cls, message: str, fields: Mapping[bytes, bytes], deliveries: int) -> Self:
        """Read a message of the gate's stream."""
        permit, credential, bucket, cost, turned = fields[b"permit"].decode().split("|")
        return cls(
            message=message,
            job=fields[b"job"].decode(),
            permit=permit,
            credential=credential,
            bucket=bucket,
            cost=int(cost),
            turned=int(turned),
            payload=fields.get(b"payload", b"").decode(),
            deliveries=deliveries,
            by=int(fields.get(b"by", b"0")),
        )


class Outcome(StrEnum):
    """The outcome of a permit."""

    ANSWERED = "answered"  # the upstream answered; without an allowance, the call counts as spent
    UNKNOWN = "unknown"  # it is unknown whether the upstream counted it, so it counts
    UNUSED = "unused"  # the call was never made


class Allowance(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The allowance in the headers of an answer."""

    limit: int
    remaining: int
    window: int
    """Identifies the window: its end, in whole seconds of the upstream's clock."""
    resets_in_ms: int
    """Ms from the answer to the end of the window, by the upstream's clock."""

    def __post_init__(self) -> None:
        for name in ("limit", "remaining", "window"):
            require_whole(name, getattr(self, name), least=0, most=_LARGEST_SAID)
        require_whole("resets_in_ms", self.resets_in_ms, least=-LONGEST_MS, most=LONGEST_MS)


class Settlement(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The end of one permit; made by `settlement`."""

    message: str
    job: str
    permit: str
    credential: str
    bucket: str
    cost: int
    turned: int
    deliveries: int
    outcome: Outcome
    said_of: str
    """The bucket of the headers."""
    limit: int | None = None
    remaining: int | None = None
    window: int | None = None
    resets_in_ms: int | None = None
    blocked_ms: int | None = None
    is_guess: bool = False
    """The upstream did not specify the duration of the block, so `blocked_ms` is a minimum."""
    rests_bucket: bool = False
    """`blocked_ms` applies to this bucket of the credential only."""
    pause_ms: int | None = None
    """How long the bucket is paused for all credentials."""
    retired: bool = False
    is_reported: bool = False
    """The block was recorded when the answer arrived; see `Gate.report`."""


def settlement(
    admitted: Admitted,
    outcome: Outcome = Outcome.ANSWERED,
    *,
    allowance: Allowance | None = None,
    bucket: str | None = None,
    blocked_ms: int | None = None,
    is_guess: bool = False,
    rests_bucket: bool = False,
    pause_ms: int | None = None,
    retired: bool = False,
) -> Settlement:
    """Return the end of a permit: its outcome, the limits in the headers, and a block or end of the credential.

    `bucket` is that of the answer, if it differs from that of the job. If the upstream did not specify the duration of
    a block, `blocked_ms` is a guess: each such block that soon follows another is twice as long. With `rests_bucket`,
    the credential is blocked in that bucket only. `pause_ms` is the pause of the bucket for all credentials.
    """
    for name, ms in (("blocked_ms", blocked_ms), ("pause_ms", pause_ms)):
        if ms is not None:
            require_whole(name, ms, least=1, most=LONGEST_MS)
    if allowance is not None and outcome is not Outcome.ANSWERED:
        raise InvalidArgument("allowance", allowance, f"must be omitted with the outcome {outcome}")
    return Settlement(
        message=admitted.message,
        job=admitted.job,
        permit=admitted.permit,
        credential=admitted.credential,
        bucket=admitted.bucket,
        cost=admitted.cost,
        turned=admitted.turned,
        deliveries=admitted.deliveries,
        outcome=outcome,
        said_of=admitted.bucket if bucket is None else require_name("bucket", bucket),
        limit=allowance.limit if allowance else None,
        remaining=allowance.remaining if allowance else None,
        window=allowance.window if allowance else None,
        # The window may have ended before the answer was read.
        resets_in_ms=max(0, allowance.resets_in_ms) if allowance else None,
        blocked_ms=blocked_ms,
        is_guess=is_guess,
        rests_bucket=rests_bucket,
        pause_ms=pause_ms,
        retired=retired,
    )


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
