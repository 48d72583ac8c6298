"""Claims on resources that several runs can reach, such as a repository of a user and of an organization.

The transaction that adds the first job of a resource also claims the resource for its run. While that run is open and
has unfinished jobs of the resource, the first jobs that other runs add *wait*, and so do failed jobs that other runs
retry: they are stored, counted and shown, and not offered to the gate. The transaction that ends the last job of the
resource releases one waiting run, which then asks with the cursors that the first run left. What did not change is
free, and each page was paid for once.

A claim without an unfinished job has no effect, so a crash leaves none behind. A canceled or failed run releases the
jobs that wait for it; recovery finds jobs that wait for a run that will not release them.

Every transaction takes its locks in one order, so none deadlocks: jobs by their ids, runs by their ids, then all claims
at once, by their keys. A job that waits is changed only by a transaction that holds the claim on its resource. Claims
have no foreign key: on MySQL, passing a claim to a run would lock the run after the claim.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, select, tuple_, update

from tidegate.engine.job_store import StoredJob, stored_jobs
from tidegate.engine.lifecycle import OPEN_RUNS, JobState
from tidegate.engine.tables import collection_runs, page_jobs, resource_claims
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.faults import TransactionConflict

_AT_ONCE = 400
_ENQUEUED = JobState.ENQUEUED
_claim, _run, _job = resource_claims.c, collection_runs.c, page_jobs.c

Key = tuple[str, str]
"""A resource: its source, and how the source names it."""
_NONE: Mapping[Key, int] = {}


def claim_resources(
    tx: Transaction, added: Sequence[StoredJob], sources: Mapping[int, str], *, ended: Mapping[Key, int] = _NONE
) -> list[StoredJob]:
    """Claim the resources of new jobs for their runs, and release jobs that waited for ended jobs.

    `sources` has the source of each run; the runs must be locked, or new. `ended` has the run of each job that ended.
    Returns the jobs to be enqueued: the new ones that do not wait for another run, and those that waited.
    """
    wanted = [job for job in added if job.spec.claims]
    holders = _lock(tx, wanted, sources, ended)
    waiting = _wait_or_claim(tx, wanted, sources, holders)
    offers = [job for job in added if job.id not in waiting]
    return offers + _release(tx, sources, ended, holders) if ended else offers


def claim_again(tx: Transaction, retried: Sequence[StoredJob], source: str) -> list[StoredJob]:
    """Claim the resources of jobs of one run that are retried; return those that do not wait for another run.

    Any job of a shared resource may have failed, not only the first one. The run must be locked.
    """
    shared = [job for job in retried if job.spec.owner]
    sources = {job.run_id: source for job in shared}
    waiting = _wait_or_claim(tx, shared, sources, _lock(tx, shared, sources))
    return [job for job in retried if job.id not in waiting]


def release(tx: Transaction, run_ids: Collection[int]) -> list[StoredJob]:
    """Release jobs that wait for these runs although the runs no longer collect the resource; return them, to enqueue.

    The transaction must hold no claim yet.
    """
    keys = sorted({_key(row) for row in _waiting(tx, run_ids)})
    return _release(tx, run_ids, keys, _rows(tx, keys)) if keys else []


def release_late(tx: Transaction, run_ids: Collection[int]) -> list[StoredJob]:
    """Release jobs that began to wait for these runs while they were canceled or failed; return them as `release`.

    Call it after that was committed. A transaction that saw one of the runs at work holds the claim until its commit,
    so its jobs are found here; a later one sees that the run is over.
    """
    reached = select(_run.source, _job.resource_key).join_from(page_jobs, collection_runs, _run.id == _job.run_id)
    reached = reached.where(_job.run_id.in_(sorted(run_ids)), _job.owner.is_not(None)).distinct()
    keys = sorted({_key(row) for row in tx.execute(reached)})
    return _release(tx, run_ids, keys, _rows(tx, keys)) if keys else []


def release_all(tx: Transaction) -> None:
    """Release every job that waits for a run that no longer collects the resource."""
    holders = select(_job.awaits_run).where(_job.awaits_run.is_not(None), _job.status == JobState.ENQUEUED).distinct()
    release(tx, [row.awaits_run for row in tx.execute(holders)])


def affected_runs(tx: Transaction, job_ids: Collection[int]) -> list[int]:
    """Return the runs of these jobs, and the runs that now have the claims on their resources.

    If it is unknown which jobs the end of a job enqueued, the unfinished jobs of all these runs are enqueued again.
    """
    ours = select(_run.id, _run.source, _job.resource_key, _job.owner).join_from(
        page_jobs, collection_runs, _run.id == _job.run_id
    )
    rows = tx.execute(ours.where(_job.id.in_(sorted(job_ids)))).all()
    found, keys = {row.id for row in rows}, sorted({(row.source, row.resource_key) for row in rows if row.owner})
    for part in _in_parts(keys):
        those = tuple_(_claim.source, _claim.resource_key).in_(part)
        found.update(tx.execute(select(_claim.run_id).where(those)).scalars())
    return sorted(found)


def forget(tx: Transaction, run_ids: Collection[int]) -> None:
    """Delete the claims of runs that are deleted."""
    held = select(_claim.source, _claim.resource_key).where(_claim.run_id.in_(sorted(run_ids)))
    for part in _in_parts(sorted({_key(row) for row in tx.execute(held)})):
        holders = _rows(tx, part)
        # Compared under the lock, because a claim may have passed to another run since it was found.
        ours = [key for key in part if holders.get(key) in run_ids]
        tx.execute(delete(resource_claims).where(tuple_(_claim.source, _claim.resource_key).in_(ours)))


def lock_waited(tx: Transaction, run_ids: Collection[int]) -> None:
    """Lock the claims on resources for which jobs of these runs wait, so that the jobs may be changed."""
    waiting = select(_run.source, _job.resource_key).join_from(page_jobs, collection_runs, _run.id == _job.run_id)
    waiting = waiting.where(_job.run_id.in_(sorted(run_ids)), _job.awaits_run.is_not(None), _job.status == _ENQUEUED)
    _rows(tx, sorted({_key(row) for row in tx.execute(waiting)}))


def _release(
    tx: Transaction, run_ids: Collection[int], keys: Collection[Key], holders: dict[Key, int]
) -> list[StoredJob]:
    """Release jobs that wait for these runs at these resources; `holders` are the claims on them, locked."""
    found: dict[tuple[int, Key], list[Any]] = {}
    for row in _waiting(tx, run_ids, {resource for _, resource in keys}):
        # The query filters by resource. Two sources can have a resource of the same name.
        if _key(row) in keys:
            found.setdefault((row.awaits_run, _key(row)), []).append(row)
    # On SQLite `_lock` returns no claims if there was nothing to claim.
    holders |= _rows(tx, sorted({key for _, key in found} - holders.keys()))
    released: list[int] = []
    passed = dict[Key, int]()
    for (holder, key), rows in found.items():
        # The run has other unfinished jobs of the resource. The transaction that ends the last one releases.
        if _is_collecting(tx, holder, key[1]):
            continue
        following = passed.get(key)
        if following is None:
            # The claim may have passed to a third run before. If that one is collecting, the jobs wait for it.
            current = holders.get(key, holder)
            following = current if current != holder and _is_collecting(tx, current, key[1]) else rows[0].run_id
            passed[key] = following
            tx.execute(update(resource_claims).where(*_is(key)).values(run_id=following))
        released += [row.id for row in rows if row.run_id == following]
        # One run continues, and the others wait for it.
        _wait_for(tx, [row.id for row in rows if row.run_id != following], following)
    if not released:
        return []
    tx.execute(update(page_jobs).where(_job.id.in_(released)).values(awaits_run=None, last_error=None))
    return stored_jobs(tx, _job.id.in_(released))


def _waiting(tx: Transaction, run_ids: Collection[int], resources: Collection[str] = ()) -> Sequence[Any]:
    """The jobs that wait for these runs, at these resources or at any."""
    columns = (_job.awaits_run, _job.resource_key, _job.id, _job.run_id, _run.source)
    waiting = select(*columns).join_from(page_jobs, collection_runs, _run.id == _job.run_id)
    waiting = waiting.where(_job.awaits_run.in_(sorted(run_ids)), _job.status == _ENQUEUED)
    if resources:
        waiting = waiting.where(_job.resource_key.in_(sorted(resources)))
    return tx.execute(waiting.order_by(_job.resource_key, _job.id)).all()


def _lock(
    tx: Transaction, wanted: Sequence[StoredJob], sources: Mapping[int, str], ended: Mapping[Key, int] = _NONE
) -> dict[Key, int]:
    """Claim resources that no run has, and lock the claims on all of them; return the run that has each.

    Of resources of which jobs `ended`, no run begins to wait unnoticed until the commit.
    """
    first = dict[Key, int]()
    for job in wanted:
        first.setdefault((sources[job.run_id], job.spec.resource), job.run_id)
    if first:  # with those of ended jobs: on MySQL the insertion locks what is there
        first = {**ended, **first}
        rows = [{"source": key[0], "resource_key": key[1], "run_id": first[key]} for key in sorted(first)]
        tx.insert_many(resource_claims, rows, skip_existing=True)
        found = _rows(tx, sorted({*first, *ended}))
        # PostgreSQL skips a row that another transaction is deleting: the retention rule deletes claims with their run.
        if first.keys() - found.keys():
            raise TransactionConflict
        return found
    if tx.dialect == "sqlite":  # one writer at a time
        return {}
    return _rows(tx, sorted(ended))


def _wait_or_claim(
    tx: Transaction, wanted: Sequence[StoredJob], sources: Mapping[int, str], holders: dict[Key, int]
) -> set[int]:
    """Let jobs wait for runs that collect their resources, and claim the other resources. Returns what waits."""
    waiting = set[int]()
    for job in wanted:
        key = (sources[job.run_id], job.spec.resource)
        if holders[key] == job.run_id:
            continue
        if _is_collecting(tx, holders[key], job.spec.resource):
            waiting.add(job.id)
            _wait_for(tx, [job.id], holders[key])
        else:
            # A claim without an unfinished job has no effect, so this run takes it.
            holders[key] = job.run_id
            tx.execute(update(resource_claims).where(*_is(key)).values(run_id=job.run_id))
    return waiting


def _rows(tx: Transaction, keys: Sequence[Key]) -> dict[Key, int]:
    found = dict[Key, int]()
    for part in _in_parts(keys):
        those = tuple_(_claim.source, _claim.resource_key).in_(part)
        claims = select(_claim.source, _claim.resource_key, _claim.run_id).where(those)
        ordered = claims.order_by(_claim.source, _claim.resource_key).with_for_update()
        found |= {(row.source, row.resource_key): row.run_id for row in tx.execute(ordered)}
    return found


def _in_parts(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))


def _key(row: Any) -> Key:
    return row.source, row.resource_key


def _is(key: Key) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return _claim.source == key[0], _claim.resource_key == key[1]


def _is_collecting(tx: Transaction, run_id: int, resource: str) -> bool:
    """Whether a run is open and has an unfinished job of the resource that does not wait for another run."""
    unfinished = exists().where(
        _job.run_id == run_id,
        _job.resource_key == resource,
        _job.end_state.is_(None),
        _job.awaits_run.is_(None),
    )
    open_run = select(_run.id).where(_run.id == run_id, _run.status.in_(OPEN_RUNS), unfinished)
    return tx.execute(open_run).first() is not None


def _wait_for(tx: Transaction, job_ids: Sequence[int], holder: int) -> None:
    if job_ids:
        reason = f"waits for run {holder}, which is collecting it"
        tx.execute(update(page_jobs).where(_job.id.in_(job_ids)).values(awaits_run=holder, last_error=reason))
