"""Why jobs are waiting in the whole deployment: pool, bucket, reason, and expected end."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from tidegate.engine.api.run_details import Wait, moment, waits_of
from tidegate.engine.credentials import Credential
from tidegate.primitives.gate import PoolStatus

RESTING = "resting"
"""The upstream asked all credentials to pause."""


class CredentialWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why one credential cannot make a call now."""

    credential: str
    reason: str
    """One of blocked, retired, concurrency, minute, probing and exhausted."""
    opens_at: datetime | None
    """When it can make a call; null if that depends on a call in progress, or is unknown."""


class PoolWait(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting jobs of one pool and bucket, with the reason."""

    pool: str
    bucket: str
    jobs: int
    reason: str
    """The reason of the credential that can call first; no_credential without one; resting if all must pause."""
    until: datetime | None
    """When the first call is possible; null if that depends on a call in progress, or is unknown."""
    credentials: list[CredentialWait]


def pool_waits(statuses: Mapping[str, PoolStatus], known: Sequence[Credential], now: datetime) -> list[PoolWait]:
    """Why jobs wait in these pools, the earliest end first; pools that can call at once are omitted."""
    found = [each for pool, status in statuses.items() for each in _waits_in(pool, status, known, now)]
    return sorted(found, key=lambda each: (each.until is None, each.until or now, each.pool, each.bucket))


def _waits_in(pool: str, status: PoolStatus, known: Sequence[Credential], now: datetime) -> list[PoolWait]:
    by_bucket: dict[str, list[Wait]] = {}
    for wait in waits_of(status, known, now):
        by_bucket.setdefault(wait.bucket, []).append(wait)
    found = [_joined(pool, bucket, status.waiting[bucket], waits) for bucket, waits in by_bucket.items()]
    for pace in status.paces:
        jobs = status.waiting.get(pace.bucket, 0)
        # The whole bucket rests, although each credential could make a call.
        if jobs and pace.rests_in_ms > 0 and pace.bucket not in by_bucket:
            until = moment(now, pace.rests_in_ms)
            found.append(
                PoolWait(pool=pool, bucket=pace.bucket, jobs=jobs, reason=RESTING, until=until, credentials=[])
            )
    return found


def _joined(pool: str, bucket: str, jobs: int, waits: Sequence[Wait]) -> PoolWait:
    """Combine the waits of all credentials; the one that can call first gives the reason, retired ones come last."""
    first = min(waits, key=lambda wait: (wait.reason == "retired", wait.opens_at is None, wait.opens_at))
    credentials = [
        CredentialWait(credential=wait.credential, reason=wait.reason, opens_at=wait.opens_at)
        for wait in waits
        if wait.credential is not None
    ]
    return PoolWait(
        pool=pool, bucket=bucket, jobs=jobs, reason=first.reason, until=first.opens_at, credentials=credentials
    )
