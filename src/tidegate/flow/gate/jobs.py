"""What goes into the gate, what comes out of it, and what is said afterwards."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

import msgspec

from tidegate.kernel.arguments import require_at_most, require_name, require_not_negative, require_positive
from tidegate.kernel.errors import InvalidArgument

LOWEST_PRIORITY = 9


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One call that somebody wants made."""

    job: str
    """Its name; the same name is never inside twice."""
    pool: str
    run: str
    """Whose it is: the runs of a pool take turns."""
    bucket: str = "core"
    priority: int = 5
    """0 goes before 9, whatever the turn."""
    cost: int = 1
    affinity: str = ""
    """The credential it had before, if it wants that one again."""
    payload: str = ""
    delay_ms: int = 0

    def __post_init__(self) -> None:
        require_name("job", self.job)
        require_name("pool", self.pool)
        require_name("run", self.run)
        require_name("bucket", self.bucket)
        require_positive("cost", self.cost)
        require_not_negative("priority", self.priority)
        require_at_most("priority", self.priority, LOWEST_PRIORITY)
        require_not_negative("delay_ms", self.delay_ms)


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its permit, as a worker finds it in the stream."""

    message: str
    job: str
    permit: str
    credential: str
    bucket: str
    cost: int
    turned: int
    """Which of the credential's windows the permit was taken from, by our own count."""
    payload: str
    deliveries: int
    """1 for the first worker that gets it; more for those who take over."""

    @classmethod
    def from_fields(cls, message: str, fields: Mapping[bytes, bytes], deliveries: int) -> Self:
        """Read a message of the gate's stream."""
        return cls(
            message=message,
            job=fields[b"job"].decode(),
            permit=fields[b"permit"].decode(),
            credential=fields[b"credential"].decode(),
            bucket=fields[b"bucket"].decode(),
            cost=int(fields[b"cost"]),
            turned=int(fields[b"turned"]),
            payload=fields[b"payload"].decode(),
            deliveries=deliveries,
        )


class Outcome(StrEnum):
    """What became of a permit."""

    ANSWERED = "answered"  # the upstream answered, whatever it said
    UNKNOWN = "unknown"  # nobody knows whether the upstream counted it, so it counts
    UNUSED = "unused"  # the call was never made


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer's headers said."""

    limit: int
    remaining: int
    window: int
    """The upstream's name for the window: its end, in whole seconds of the upstream's clock."""
    resets_in_ms: int
    """How far that end was from the moment of the answer, by the upstream's own clock."""

    def __post_init__(self) -> None:
        for name in ("limit", "remaining", "window"):
            require_not_negative(name, getattr(self, name))


class Settlement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of one permit; made by `settlement`."""

    message: str
    job: str
    permit: str
    credential: str
    bucket: str
    cost: int
    turned: int
    outcome: Outcome
    said_of: str
    """The bucket that the headers are about."""
    limit: int | None = None
    remaining: int | None = None
    window: int | None = None
    resets_in_ms: int | None = None
    blocked_ms: int | None = None
    retired: bool = False


def settlement(
    admitted: Admitted,
    outcome: Outcome = Outcome.ANSWERED,
    *,
    allowance: Allowance | None = None,
    bucket: str | None = None,
    blocked_ms: int | None = None,
    retired: bool = False,
) -> Settlement:
    """Say what became of a permit, what the headers told, and whether the credential must rest or is no good any more.

    `bucket` is the one the answer named, where that differs from the one the job assumed.
    """
    if blocked_ms is not None:
        require_positive("blocked_ms", blocked_ms)
    if allowance is not None and outcome is not Outcome.ANSWERED:
        raise InvalidArgument("allowance", allowance, f"there are no headers where the outcome is {outcome}")
    return Settlement(
        message=admitted.message,
        job=admitted.job,
        permit=admitted.permit,
        credential=admitted.credential,
        bucket=admitted.bucket,
        cost=admitted.cost,
        turned=admitted.turned,
        outcome=outcome,
        said_of=admitted.bucket if bucket is None else require_name("bucket", bucket),
        limit=allowance.limit if allowance else None,
        remaining=allowance.remaining if allowance else None,
        window=allowance.window if allowance else None,
        resets_in_ms=max(0, allowance.resets_in_ms) if allowance else None,
        blocked_ms=blocked_ms,
        retired=retired,
    )
