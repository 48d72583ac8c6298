"""Stored limits of credentials, from which a gate that lost its data is restored before it grants a permit.

Without them, the gate would have to exceed a limit to learn it. The transaction that writes an answer also stores its
limits if the credential is blocked or has few calls left, which is rare. The calls of the last minute, and those in
flight, are counted from the jobs.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, or_, select, update

from tidegate.core.clock import milliseconds
from tidegate.engine.job_store import JobResult
from tidegate.engine.lifecycle import ACTIVE_RUNS, JobState
from tidegate.engine.tables import allowance_notes, collection_runs, in_state, page_jobs
from tidegate.primitives.gate import CredentialRecord, LearnedLimits, PoolRecord, Settlement
from tidegate.storage.sql import Transaction

_LITTLE = 200
"""Remaining calls up to which they are stored. With more, the gate can learn the number from its first call."""
_MINUTE = timedelta(minutes=1)
_LEARNED = tuple(f"learned_{name}" for name in ("concurrency", "per_minute", "every_ms", "from", "until"))
_KEY = ("source", "credential", "bucket")
_c = allowance_notes.c


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A row without its key."""

    pool: str
    most: int | None = None
    remaining: int | None = None
    upstream_window: int | None = None
    resets_at: datetime | None = None
    blocked_until: datetime | None = None
    rests_bucket: int = 0
    """1 if only this bucket is blocked."""
    learned_concurrency: int | None = None
    learned_per_minute: int | None = None
    learned_every_ms: int | None = None
    learned_from: datetime | None = None
    learned_until: datetime | None = None


def write(tx: Transaction, results: Iterable[JobResult]) -> None:
    """Store what these results report about blocked or nearly exhausted credentials."""
    reported: dict[tuple[str, str, str], _Record] = {}
    for one in results:
        said = one.settlement
        if _is_scarce(said):
            key = (one.source, said.credential, said.said_of)
            reported[key] = _merged(reported.get(key), _record_of(one, tx.now))
    if reported:
        _write(tx, {key: reported[key] for key in sorted(reported)})  # sorted: all writers lock in the same order


def memories(tx: Transaction, sources: Collection[str] | None = None) -> list[PoolRecord]:
    """Return the stored limits of every pool of these sources, or of all sources."""
    ours = [] if sources is None else [_c.source.in_(sorted(sources))]
    rows = tx.execute(select(allowance_notes).where(*ours).order_by(_c.credential, _c.bucket)).all()
    theirs = [] if sources is None else [collection_runs.c.source.in_(sorted(sources))]
    started = _count(tx, page_jobs.c.started_at > tx.now - _MINUTE, *theirs)
    running = _count(tx, in_state(JobState.RUNNING), *theirs)
    pools = {row.pool for row in rows} | started.keys() | running.keys()
    return [
        PoolRecord(
            pool=pool,
            started=started.get(pool, 0),
            running=running.get(pool, 0),
            notes=[_note(row, tx.now) for row in rows if row.pool == pool],
        )
        for pool in sorted(pools)
    ]


def sweep(tx: Transaction) -> None:
    """Delete records of windows, blocks and learned limits that have expired."""
    ends = (_c.resets_at, _c.blocked_until, _c.learned_until)
    # A row is needed while one of its three ends is still to come.
    is_past = [or_(column.is_(None), column <= tx.now) for column in ends]
    tx.execute(delete(allowance_notes).where(*is_past))


def _is_scarce(said: Settlement) -> bool:
    return said.blocked_ms is not None or (said.remaining is not None and said.remaining <= _LITTLE)


def _record_of(one: JobResult, now: datetime) -> _Record:
    """Return what a result says about the allowance of its credential: block, window and learned limits."""
    said = one.settlement
    record = _Record(pool=one.claim.job.pool)
    if said.blocked_ms is not None:
        blocked = now + timedelta(milliseconds=said.blocked_ms)
        record = msgspec.structs.replace(record, blocked_until=blocked, rests_bucket=int(said.rests_bucket))
    if said.resets_in_ms is not None:
        record = msgspec.structs.replace(
            record,
            most=said.limit,
            remaining=said.remaining,
            upstream_window=said.window,
            resets_at=now + timedelta(milliseconds=said.resets_in_ms),
        )
    if (learned := one.learned) is not None:
        record = msgspec.structs.replace(
            record,
            learned_concurrency=learned.concurrency,
            learned_per_minute=learned.per_minute,
            learned_every_ms=learned.every_ms,
            learned_from=now + timedelta(milliseconds=learned.begins_in_ms),
            learned_until=now + timedelta(milliseconds=learned.ends_in_ms),
        )
    return record


def _merged(before: _Record | None, new: _Record) -> _Record:
    """Merge two records of a credential and bucket.

    The newer window counts, and within a window the lower number of remaining calls. The later end of a block counts,
    and so do the limits that were learned last. If one of two blocks concerns the whole credential, both do: blocking
    too much violates no limit.
    """
    if before is None:
        return new
    blocks = [record for record in (before, new) if record.blocked_until is not None]
    until = max((record.blocked_until for record in blocks if record.blocked_until is not None), default=None)
    best = min((before, new), key=lambda record: (-(record.upstream_window or 0), record.remaining or 0))
    bucket_only = int(bool(blocks) and all(record.rests_bucket for record in blocks))
    latest = before if new.learned_until is None else new
    learned = {name: getattr(latest, name) for name in _LEARNED}
    return msgspec.structs.replace(best, pool=new.pool, blocked_until=until, rests_bucket=bucket_only, **learned)


def _write(tx: Transaction, reported: Mapping[tuple[str, str, str], _Record]) -> None:
    rows = [{**dict(zip(_KEY, key, strict=True)), "pool": one.pool} for key, one in reported.items()]
    # Inserted first, so that every row exists and can be locked for the merge.
    tx.insert_many(allowance_notes, rows, skip_existing=True)
    for key, new in reported.items():
        this = [_c[name] == value for name, value in zip(_KEY, key, strict=True)]
        row = tx.execute(select(allowance_notes).where(*this).with_for_update()).one()
        before = msgspec.convert(row, _Record, from_attributes=True)
        tx.execute(update(allowance_notes).where(*this).values(msgspec.structs.asdict(_merged(before, new))))


def _count(tx: Transaction, *conditions: ColumnElement[bool]) -> dict[str, int]:
    """Count the jobs that meet the conditions by pool, in runs that are active or ended within the last minute."""
    run = collection_runs.c
    is_recent = or_(run.status.in_(ACTIVE_RUNS), run.completed_at > tx.now - _MINUTE)
    counted = select(run.pool, func.count()).join_from(page_jobs, collection_runs).where(is_recent, *conditions)
    return {row[0]: row[1] for row in tx.execute(counted.group_by(run.pool))}


def _note(row: Any, now: datetime) -> CredentialRecord:
    """Convert a row to a record. The limit and the remaining units are left out if their window has ended."""
    blocked_ms = 0 if row.blocked_until is None else max(0, milliseconds(row.blocked_until - now))
    note = CredentialRecord(
        credential=row.credential,
        bucket=row.bucket,
        blocked_ms=blocked_ms,
        rests_bucket=bool(row.rests_bucket),
        learned=_learned(row, now),
    )
    if row.resets_at is None or row.resets_at <= now:
        return note
    return msgspec.structs.replace(
        note,
        limit=row.most,
        remaining=row.remaining,
        window=row.upstream_window,
        resets_in_ms=milliseconds(row.resets_at - now),
    )


def _learned(row: Any, now: datetime) -> LearnedLimits | None:
    if row.learned_until is None or row.learned_until <= now:
        return None
    return LearnedLimits(
        concurrency=row.learned_concurrency,
        per_minute=row.learned_per_minute,
        every_ms=row.learned_every_ms,
        begins_in_ms=milliseconds(row.learned_from - now),
        ends_in_ms=milliseconds(row.learned_until - now),
    )
