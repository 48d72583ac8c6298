"""Rounds without a gate: claims and results straight into the database, as a committer writes them."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import func, select

from tidegate.engine import runs
from tidegate.engine.commit_batch import CommitBatch, CommitOutcome, CommitPolicy, WriteGroup, write_batch
from tidegate.engine.job_store import Claim, ClaimsLost, JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.run_counters import run_ended
from tidegate.engine.runs import NewRun, Run
from tidegate.engine.source import JobSpec, Subject
from tidegate.engine.tables import page_jobs
from tidegate.primitives.gate import Admitted, settlement
from tidegate.storage.documents import Staged
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.schema import outbox_events

TERMS = CommitPolicy(planning={"shelves": frozenset({"USER"})})


def shelf_job(name: str, page: int = 0) -> JobSpec:
    return JobSpec(kind="SHELF", resource=f"shelf:{name}", page=f"page {page}" if page else "first")


async def begun(database: Database, user: str = "ada", specs: Sequence[JobSpec] = ()) -> tuple[int, list[int]]:
    """A run with one planning job, or with `specs`: its number, and those of its jobs."""
    first = list(specs) or [JobSpec(kind="USER", resource=f"user:{user}")]
    beginning = NewRun("shelves", Subject(user_id=user, login=user), "pool", "manual", first)
    run_id, jobs = await database.transaction(runs.begin, beginning)
    return run_id, [job.id for job in jobs]


def finished(claim: Claim, state: JobState = JobState.SUCCEEDED, **ending: Any) -> JobResult:
    """A result of one call."""
    job = str(claim.job.id)
    admitted = Admitted(
        message=f"{job}-{claim.fence}",
        job=job,
        permit=job,
        credential="librarian",
        bucket="core",
        cost=1,
        turned=0,
        payload="",
        deliveries=1,
    )
    return JobResult(claim=claim, state=state, calls=1, settlement=settlement(admitted), **ending)


async def write(
    database: Database,
    results: Sequence[JobResult] = (),
    wanted: Sequence[int] = (),
    *,
    late: Sequence[JobResult] = (),
    staged: Staged | None = None,
    policy: CommitPolicy = TERMS,
) -> CommitOutcome:
    """One round; results that are not ours any more count as late."""
    this = CommitBatch(wanted=wanted, groups=[WriteGroup(results, staged)] if results else [], late=late)
    written = await write_or_find_overtaken(database, this, policy)
    if not written.overtaken:
        return written
    overtaken = {id(one) for one in written.overtaken}
    left = [one for one in results if id(one) not in overtaken]
    return await write(database, left, wanted, late=[*late, *written.overtaken], policy=policy)


async def write_or_find_overtaken(database: Database, this: CommitBatch, policy: CommitPolicy) -> CommitOutcome:
    """One batch, as a committer writes it; the outcome says which of its results were overtaken."""
    try:
        return await database.transaction(write_batch, this, policy)
    except ClaimsLost:
        found = msgspec.structs.replace(this, finds_overtaken=True)
        return await database.transaction(write_batch, found, policy)


async def claimed(database: Database, *job_ids: int) -> list[Claim]:
    claims = (await write(database, wanted=job_ids)).claimed
    return [claims[job_id] for job_id in job_ids]


async def shown(database: Database, run_id: int) -> Run:
    return await database.read(runs.get, run_id)


def recount(tx: Transaction, run_id: int) -> dict[str, int]:
    """What the counters of a run must be, by its jobs."""
    job = page_jobs.c
    counted = select(job.status, func.count()).where(job.run_id == run_id).group_by(job.status)
    by_state = {row[0]: row[1] for row in tx.execute(counted)}
    return {
        "total_jobs": sum(by_state.values()),
        "succeeded_jobs": by_state.get(JobState.SUCCEEDED, 0) + by_state.get(JobState.UNAVAILABLE, 0),
        "failed_jobs": by_state.get(JobState.FAILED, 0),
        "canceled_jobs": by_state.get(JobState.CANCELED, 0),
    }


def told_ends(tx: Transaction, run_id: int) -> int:
    """How often it was told that the run has ended."""
    event = outbox_events.c
    found = select(func.count()).where(event.kind == run_ended("shelves"), event.event_key == f"run:{run_id}")
    return tx.execute(found).scalar_one()


async def assert_counted(database: Database, run_id: int) -> Run:
    run, counted = await shown(database, run_id), await database.read(recount, run_id)
    assert {name: getattr(run, name) for name in counted} == counted
    return run
