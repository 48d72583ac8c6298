"""What keeps jobs from being done, in the whole deployment: who waits, for what, why, and until when."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from tidegate.engine.api.run_details import Wait, moment, waits_of
from tidegate.engine.credentials import Credential
from tidegate.primitives.gate import PoolStatus

RESTING = "resting"
"""Nobody may call for a while: the other side asked all of us to."""


class CredentialWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why one credential makes no call now."""

    credential: str
    reason: str
    """blocked, retired, concurrency, minute, probing or exhausted."""
    opens_at: datetime | None
    """When it may; null where that is when a call under way ends, or nobody knows."""


class PoolWait(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that wait for one kind of call, and why."""

    pool: str
    bucket: str
    jobs: int
    reason: str
    """That of the credential which may call first; no_credential where there is none, resting where nobody may call."""
    until: datetime | None
    """When the first call may be made; null where that is when a call under way ends, or nobody knows."""
    credentials: list[CredentialWait]


def pool_waits(statuses: Mapping[str, PoolStatus], known: Sequence[Credential], now: datetime) -> list[PoolWait]:
    """Why the jobs that wait in these pools do, the earliest first; nothing where a call could be made at once."""
    found = [each for pool, status in statuses.items() for each in _waits_in(pool, status, known, now)]
    return sorted(found, key=lambda each: (each.until is None, each.until or now, each.pool, each.bucket))


def _waits_in(pool: str, status: PoolStatus, known: Sequence[Credential], now: datetime) -> list[PoolWait]:
    by_bucket: dict[str, list[Wait]] = {}
    for wait in waits_of(status, known, now):
        by_bucket.setdefault(wait.bucket, []).append(wait)
    found = [_joined(pool, bucket, status.waiting[bucket], waits) for bucket, waits in by_bucket.items()]
    for pace in status.paces:
        jobs = status.waiting.get(pace.bucket, 0)
        if jobs and pace.rests_in_ms > 0 and pace.bucket not in by_bucket:
            until = moment(now, pace.rests_in_ms)
            found.append(
                PoolWait(pool=pool, bucket=pace.bucket, jobs=jobs, reason=RESTING, until=until, credentials=[])
            )
    return found


def _joined(pool: str, bucket: str, jobs: int, waits: Sequence[Wait]) -> PoolWait:
    """Who may call first says why; who never may again says it last."""
    first = min(waits, key=lambda wait: (wait.reason == "retired", wait.opens_at is None, wait.opens_at))
    credentials = [
        CredentialWait(credential=wait.credential, reason=wait.reason, opens_at=wait.opens_at)
        for wait in waits
        if wait.credential is not None
    ]
    return PoolWait(
        pool=pool, bucket=bucket, jobs=jobs, reason=first.reason, until=first.opens_at, credentials=credentials
    )
