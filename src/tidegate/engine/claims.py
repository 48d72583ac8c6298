"""Which of several runs collects a resource that all of them reach, like a repository of a user and an organization.

The transaction that adds the first job of a resource also claims the resource for its run. While that run is open and
has unfinished jobs of the resource, the first jobs that other runs add *wait*: they are stored, counted and shown, and
not offered to the gate. The transaction that ends the last job of the resource releases one waiting run, which then
asks with the cursors that the first run left. What did not change is free, and each page was paid for once.

A claim without an unfinished job counts for nothing, so a crash leaves none behind. A run that is canceled or failed
releases what waits for it; recovery looks for jobs that wait in vain.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, exists, select, tuple_, update

from tidegate.engine.job_store import StoredJob, stored_jobs
from tidegate.engine.lifecycle import OPEN_RUNS, UNFINISHED_JOBS, JobState
from tidegate.engine.tables import collection_runs, page_jobs, resource_claims
from tidegate.storage.sql import Transaction

_AT_ONCE = 400
_claim, _run, _job = resource_claims.c, collection_runs.c, page_jobs.c


def claim_resources(tx: Transaction, added: Sequence[StoredJob]) -> list[StoredJob]:
    """Claim the resources of new jobs for their runs; return the jobs that do not wait for another run."""
    wanted = [job for job in added if job.spec.claims]
    if not wanted:
        return list(added)
    sources = _sources_of(tx, {job.run_id for job in wanted})
    holders = _claimed(tx, [(sources[job.run_id], job.spec.resource, job.run_id) for job in wanted])
    waiting: dict[int, int] = {}
    for job in wanted:
        key = (sources[job.run_id], job.spec.resource)
        if holders[key] == job.run_id:
            continue
        if _is_at_work(tx, holders[key], job.spec.resource):
            waiting[job.id] = holders[key]
        else:
            holders[key] = job.run_id
            tx.execute(update(resource_claims).where(*_is(key)).values(run_id=job.run_id))
    for job_id, holder in waiting.items():
        _wait_for(tx, [job_id], holder)
    return [job for job in added if job.id not in waiting]


def release(tx: Transaction, run_ids: Collection[int], resources: Collection[str] | None = None) -> list[StoredJob]:
    """Release jobs that wait for these runs and are waited for in vain; return them, to be offered to the gate.

    With `resources` only those are looked at: of them a job has just ended.
    """
    those: list[ColumnElement[bool]] = [_job.awaits_run.in_(sorted(run_ids)), _job.status == JobState.ENQUEUED]
    if resources is not None:
        those.append(_job.resource_key.in_(sorted(resources)))
    keys = {(row.source, row.resource_key) for row in _waiting(tx, those)}
    if not keys:
        return []
    holders = _rows(tx, sorted(keys))
    found: dict[tuple[int, str], list[Any]] = {}
    for row in _waiting(tx, those):  # again: until the claims were locked, others could release the same jobs
        if (row.source, row.resource_key) in keys:
            found.setdefault((row.awaits_run, row.resource_key), []).append(row)
    released: list[int] = []
    for (holder, resource), rows in found.items():
        if _is_at_work(tx, holder, resource):
            continue
        key = (rows[0].source, resource)
        current = holders.get(key, holder)
        following = current if current != holder and _is_at_work(tx, current, resource) else rows[0].run_id
        tx.execute(update(resource_claims).where(*_is(key)).values(run_id=following))
        released += [row.id for row in rows if row.run_id == following]
        _wait_for(tx, [row.id for row in rows if row.run_id != following], following)
    if not released:
        return []
    tx.execute(update(page_jobs).where(_job.id.in_(released)).values(awaits_run=None, last_error=None))
    return stored_jobs(tx, _job.id.in_(released))


def release_late(tx: Transaction, run_ids: Collection[int]) -> list[StoredJob]:
    """Release jobs that began to wait for these runs while they were canceled or failed; return them as `release`.

    Call it after that was committed. A transaction that saw one of the runs at work holds the claim until its commit,
    so its jobs are found here; a later one sees that the run is over.
    """
    reached = select(_run.source, _job.resource_key).join_from(page_jobs, collection_runs, _run.id == _job.run_id)
    reached = reached.where(_job.run_id.in_(sorted(run_ids)), _job.owner.is_not(None)).distinct()
    lock_claims(tx, [(row.source, row.resource_key) for row in tx.execute(reached)])
    return release(tx, run_ids)


def release_all(tx: Transaction) -> None:
    """Release every job that waits in vain, whatever was interrupted."""
    holders = select(_job.awaits_run).where(_job.awaits_run.is_not(None), _job.status == JobState.ENQUEUED).distinct()
    release(tx, [row.awaits_run for row in tx.execute(holders)])


def affected_runs(tx: Transaction, job_ids: Collection[int]) -> list[int]:
    """Return the runs of these jobs, and those that have the claims on their resources by now.

    Where it is unknown what the end of a job enqueued, the unfinished jobs of all of them are enqueued again.
    """
    ours = select(_run.id, _run.source, _job.resource_key, _job.owner).join_from(
        page_jobs, collection_runs, _run.id == _job.run_id
    )
    rows = tx.execute(ours.where(_job.id.in_(sorted(job_ids)))).all()
    found, keys = {row.id for row in rows}, sorted({(row.source, row.resource_key) for row in rows if row.owner})
    for start in range(0, len(keys), _AT_ONCE):
        those = tuple_(_claim.source, _claim.resource_key).in_(keys[start : start + _AT_ONCE])
        found.update(tx.execute(select(_claim.run_id).where(those)).scalars())
    return sorted(found)


def lock_claims(tx: Transaction, ended: Iterable[tuple[str, str]]) -> None:
    """Lock the claims on resources of which jobs end, so that no other run begins to wait for them unnoticed.

    SQLite has one writer at a time.
    """
    if tx.dialect != "sqlite":
        _rows(tx, sorted(set(ended)))


def _waiting(tx: Transaction, those: Sequence[ColumnElement[bool]]) -> Sequence[Any]:
    columns = (_job.awaits_run, _job.resource_key, _job.id, _job.run_id, _run.source)
    waiting = select(*columns).join_from(page_jobs, collection_runs, _run.id == _job.run_id)
    return tx.execute(waiting.where(*those).order_by(_job.resource_key, _job.id)).all()


def _claimed(tx: Transaction, wanted: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    """The run that holds each resource, after those that are free were claimed; locked until the commit."""
    first: dict[tuple[str, str], int] = {}
    for source, resource, run_id in wanted:
        first.setdefault((source, resource), run_id)
    rows = [{"source": key[0], "resource_key": key[1], "run_id": first[key]} for key in sorted(first)]
    tx.insert_many(resource_claims, rows, skip_existing=True)
    return _rows(tx, sorted(first))


def _rows(tx: Transaction, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for start in range(0, len(keys), _AT_ONCE):
        those = tuple_(_claim.source, _claim.resource_key).in_(keys[start : start + _AT_ONCE])
        claims = select(_claim.source, _claim.resource_key, _claim.run_id).where(those)
        ordered = claims.order_by(_claim.source, _claim.resource_key).with_for_update()
        found |= {(row.source, row.resource_key): row.run_id for row in tx.execute(ordered)}
    return found


def _is(key: tuple[str, str]) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return _claim.source == key[0], _claim.resource_key == key[1]


def _is_at_work(tx: Transaction, run_id: int, resource: str) -> bool:
    """Whether a run is open and has a job of the resource that does not wait itself."""
    unfinished = exists().where(
        _job.run_id == run_id,
        _job.resource_key == resource,
        _job.status.in_(UNFINISHED_JOBS),
        _job.awaits_run.is_(None),
    )
    open_run = select(_run.id).where(_run.id == run_id, _run.status.in_(OPEN_RUNS), unfinished)
    return tx.execute(open_run).first() is not None


def _wait_for(tx: Transaction, job_ids: Sequence[int], holder: int) -> None:
    if job_ids:
        reason = f"waits for run {holder}, which is collecting it"
        tx.execute(update(page_jobs).where(_job.id.in_(job_ids)).values(awaits_run=holder, last_error=reason))


def _sources_of(tx: Transaction, run_ids: Collection[int]) -> Mapping[int, str]:
    found = select(_run.id, _run.source).where(_run.id.in_(sorted(run_ids)))
    return {row.id: row.source for row in tx.execute(found)}
