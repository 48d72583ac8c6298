"""Limits that a gate without data must know before it allows a call: finding them out again would violate them.

A blocked credential, or one with few calls left in its window, is stored by the transaction that writes the answer
which said so; that is rare. The calls of the last minute, and those in flight, are counted from the jobs.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, or_, select, update

from tidegate.core.clock import milliseconds
from tidegate.engine.job_store import JobResult
from tidegate.engine.lifecycle import ACTIVE_RUNS, JobState
from tidegate.engine.tables import allowance_notes, collection_runs, page_jobs
from tidegate.primitives.gate import CredentialRecord, LearnedLimits, PoolRecord, Settlement
from tidegate.storage.sql import Transaction

_LITTLE = 200
"""Calls that are left. Where there are more, a first call may find out how many, and those under way do no harm."""
_MINUTE = timedelta(minutes=1)
_LEARNED = tuple(f"learned_{name}" for name in ("concurrency", "per_minute", "every_ms", "from", "until"))
_KEY = ("source", "credential", "bucket")
_c = allowance_notes.c


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """A row, without its key."""

    pool: str
    most: int | None = None
    remaining: int | None = None
    upstream_window: int | None = None
    resets_at: datetime | None = None
    blocked_until: datetime | None = None
    rests_bucket: int = 0
    """1 where the rest is for this bucket alone."""
    learned_concurrency: int | None = None
    learned_per_minute: int | None = None
    learned_every_ms: int | None = None
    learned_from: datetime | None = None
    learned_until: datetime | None = None


def write(tx: Transaction, results: Iterable[JobResult]) -> None:
    """Note what these results told of credentials that are scarce; the others cost nothing."""
    told: dict[tuple[str, str, str], _Told] = {}
    for one in results:
        said = one.settlement
        if _is_scarce(said):
            key = (one.source, said.credential, said.said_of)
            told[key] = _merged(told.get(key), _told(one, tx.now))
    if told:
        _write(tx, {key: told[key] for key in sorted(told)})  # sorted: two writers meet in one order


def memories(tx: Transaction, sources: Collection[str] | None = None) -> list[PoolRecord]:
    """What is remembered of every pool of some sources, or of all."""
    ours = [] if sources is None else [_c.source.in_(sorted(sources))]
    rows = tx.execute(select(allowance_notes).where(*ours).order_by(_c.credential, _c.bucket)).all()
    theirs = [] if sources is None else [collection_runs.c.source.in_(sorted(sources))]
    started = _count(tx, page_jobs.c.started_at > tx.now - _MINUTE, *theirs)
    running = _count(tx, page_jobs.c.status == JobState.RUNNING, *theirs)
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
    """Throw away notes of windows and rests that are over, and of lessons that have no effect any more."""
    ends = (_c.resets_at, _c.blocked_until, _c.learned_until)
    is_past = [or_(column.is_(None), column <= tx.now) for column in ends]
    tx.execute(delete(allowance_notes).where(*is_past))


def _is_scarce(said: Settlement) -> bool:
    return said.blocked_ms is not None or (said.remaining is not None and said.remaining <= _LITTLE)


def _told(one: JobResult, now: datetime) -> _Told:
    said = one.settlement
    told = _Told(pool=one.claim.job.pool)
    if said.blocked_ms is not None:
        blocked = now + timedelta(milliseconds=said.blocked_ms)
        told = msgspec.structs.replace(told, blocked_until=blocked, rests_bucket=int(said.rests_bucket))
    if said.resets_in_ms is not None:
        told = msgspec.structs.replace(
            told,
            most=said.limit,
            remaining=said.remaining,
            upstream_window=said.window,
            resets_at=now + timedelta(milliseconds=said.resets_in_ms),
        )
    if (learned := one.learned) is not None:
        told = msgspec.structs.replace(
            told,
            learned_concurrency=learned.concurrency,
            learned_per_minute=learned.per_minute,
            learned_every_ms=learned.every_ms,
            learned_from=now + timedelta(milliseconds=learned.begins_in_ms),
            learned_until=now + timedelta(milliseconds=learned.ends_in_ms),
        )
    return told


def _merged(before: _Told | None, new: _Told) -> _Told:
    """The newer window counts; within one, the least that was said. A rest ends when the longest does. The last lesson
    counts.

    Of two rests, of which one is for all that the credential does, the other counts as such too: too much rest breaks
    no rule.
    """
    if before is None:
        return new
    rests = [told for told in (before, new) if told.blocked_until is not None]
    until = max((told.blocked_until for told in rests if told.blocked_until is not None), default=None)
    best = min((before, new), key=lambda told: (-(told.upstream_window or 0), told.remaining or 0))
    alone = int(bool(rests) and all(told.rests_bucket for told in rests))
    lesson = before if new.learned_until is None else new
    learned = {name: getattr(lesson, name) for name in _LEARNED}
    return msgspec.structs.replace(best, pool=new.pool, blocked_until=until, rests_bucket=alone, **learned)


def _write(tx: Transaction, told: Mapping[tuple[str, str, str], _Told]) -> None:
    rows = [{**dict(zip(_KEY, key, strict=True)), "pool": one.pool} for key, one in told.items()]
    tx.insert_many(allowance_notes, rows, skip_existing=True)
    for key, new in told.items():
        this = [_c[name] == value for name, value in zip(_KEY, key, strict=True)]
        row = tx.execute(select(allowance_notes).where(*this).with_for_update()).one()
        before = msgspec.convert(row, _Told, from_attributes=True)
        tx.execute(update(allowance_notes).where(*this).values(msgspec.structs.asdict(_merged(before, new))))


def _count(tx: Transaction, *conditions: ColumnElement[bool]) -> dict[str, int]:
    """Jobs of which something is true, by pool; of runs that are active, or were a minute ago."""
    run = collection_runs.c
    is_recent = or_(run.status.in_(ACTIVE_RUNS), run.completed_at > tx.now - _MINUTE)
    counted = select(run.pool, func.count()).join_from(page_jobs, collection_runs).where(is_recent, *conditions)
    return {row[0]: row[1] for row in tx.execute(counted.group_by(run.pool))}


def _note(row: Any, now: datetime) -> CredentialRecord:
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
