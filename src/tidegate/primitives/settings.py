"""Settings of the primitives. The rules of a limiter are in `tidegate.primitives.limiter.settings`.

They are apart from the classes that use them, because each command reads the settings, but few use the primitives.
"""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tidegate.core.arguments import require_name


class CircuitBreakerSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of a circuit breaker: when it opens, and how it closes again."""

    window: int = Field(default=10, ge=1)
    """Number of last calls that are evaluated; the breaker stays closed until there were that many."""
    failure_rate: float = Field(default=0.5, gt=0, le=1)
    """Share of failures among them from which the breaker opens."""
    open_for: Annotated[timedelta, Gt(timedelta(0))] = timedelta(seconds=30)
    """How long calls are refused before trial calls are made."""
    trials: int = Field(default=5, ge=1)
    """Number of trial calls; the same share of failures among them opens the breaker again."""


Span = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=31))]


class CoalescerSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of a coalescer: how long work is locked, and its version remembered."""

    high_lock: Span = timedelta(seconds=30)
    """How long HIGH work is locked; afterwards it may be requested again."""
    low_lock: Span = timedelta(seconds=60)
    """How long LOW work is locked."""
    keep_version: Span = timedelta(minutes=45)
    """How long the version of a subject is kept. An event that waited longer cannot be recognised as obsolete."""

    @model_validator(mode="after")
    def _version_outlives_its_lock(self) -> Self:
        if self.keep_version < max(self.high_lock, self.low_lock):
            raise ValueError("keep_version must be at least as long as the locks")
        return self


class CredentialLimits(BaseModel):
    """Bounds that the upstream's headers do not tell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrency: int = Field(default=50, ge=1, le=10_000)
    """Calls of one credential that may be under way at once. Each refusal for a secondary limit halves what was under
    way; that recovers slowly."""
    first_concurrency: int = Field(default=4, ge=1, le=10_000)
    """Calls at once with which a new credential begins, where the upstream tells what is left. Each answer allows one
    more, up to `concurrency`: a limit that is not announced is found by a few refusals, and not by fifty."""
    per_minute: int = Field(default=840, ge=1, le=10**9)
    """Calls of one credential in any minute, as the upstream sees it. Refusals lower it like `concurrency`."""
    one_at_a_time: frozenset[str] = frozenset({"graphql"})
    """Buckets in which a credential makes one call at a time. The upstream bounds the computing time of a minute, and
    calls that follow each other compute no longer than they take."""
    floor: int = Field(default=100, ge=0)
    """Permits of each window that are never spent, for other programs that use the same credential. No limit depends
    on them: a permit with an unknown outcome counts as spent."""
    floor_share: float = Field(default=0.02, ge=0, le=1, allow_inf_nan=False)
    """Largest share of a limit that `floor` takes, rounded down: 100 of 5,000 calls, 1 of 60, none of 30 searches."""

    def floor_of(self, limit: int) -> int:
        """Permits of a window with this limit that are never spent."""
        return min(self.floor, int(limit * self.floor_share))

    window: timedelta = Field(default=timedelta(hours=1), ge=timedelta(milliseconds=1), le=timedelta(days=31))
    """Maximum duration of a window, for calls without an answer."""
    metered: bool = True
    """Whether the upstream tells what is left. Where it does not, there is nothing to find out by a probe: as many
    calls go at once as `concurrency` allows."""
    patience: timedelta = Field(default=timedelta(minutes=1), ge=timedelta(0), le=timedelta(days=31))
    """How long a job waits for the credential it had before, while another could serve it."""


class MembershipSettings(BaseModel, frozen=True, extra="forbid"):
    """When a process that does not renew its lease counts as dead. The same for all processes of a deployment."""

    lease: Span = timedelta(seconds=10)
    """Length of a lease."""
    renew_every: Span = timedelta(seconds=7)
    """Interval of renewals; the rest of the lease is left for retries. At least 100 ms in a deployment."""

    @property
    def proof(self) -> timedelta:
        """How long the server must have accepted writes before a lease counts as ended: half of the time that is left
        for retries of a renewal."""
        return (self.lease - self.renew_every) / 2

    @property
    def gap(self) -> timedelta:
        """Maximum time between two writes that prove it; at least a second, for busy machines."""
        return max(self.proof, timedelta(seconds=1))

    @property
    def retry(self) -> timedelta:
        """Longest pause before a failed renewal is retried: several retries fit into `proof`."""
        return self.proof / 3

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renew_every >= self.lease:
            raise ValueError("renew_every must be shorter than lease")
        return self


GroupName = Annotated[str, AfterValidator(lambda name: require_name("group", name))]


class StreamSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of a stream; the same for all its processes."""

    group: GroupName = "workers"
    """The consumer group. There is one per stream, because a message is deleted when it is acknowledged."""
    max_deliveries: int = Field(default=5, ge=1, le=10**9)
    """A message that was delivered this often without success becomes a dead letter."""
    idle_limit: Span = timedelta(minutes=5)
    """A message that is held longer without an acknowledgement is given to another consumer. At least a second in a
    deployment."""
    blocking: bool | None = None
    """Whether reads block on the server; unset: if the server allows it."""
    poll_interval: Span = timedelta(milliseconds=100)
    """First pause after an empty read if reads do not block; it grows to a second."""
    remember_adds_for: Span = timedelta(minutes=1)
    """How long a repeated batch is recognised; longer than a client retries."""


class TimerSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of timers: how many due ones are promoted at once."""

    promoted_at_once: int = Field(default=500, ge=1, le=1000)
    """How many due timers one script promotes: enough to be quick, few enough not to hold up the server."""
