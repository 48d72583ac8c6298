"""The counters of a run are what its jobs say, whatever happened and in whatever order."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from tests.engine.batches import TERMS, assert_counted, begun, finished, recount, shelf_job, shown, told_ends, write
from tests.examples import examples
from tidegate.core.errors import DatabaseUnavailable
from tidegate.engine import job_store, runs
from tidegate.engine.job_store import Claim
from tidegate.engine.lifecycle import ACTIVE_RUNS, OPEN_RUNS, JobState, RunState
from tidegate.engine.runs import RunCanceled
from tidegate.engine.tables import collection_runs, page_jobs
from tidegate.storage.sql import Database, Transaction

ENDS = (JobState.SUCCEEDED, JobState.UNAVAILABLE, JobState.FAILED, JobState.READY)
_users = count()

steps = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.integers(0, 9), st.integers(1, 4)),
        st.tuples(st.sampled_from(ENDS), st.integers(0, 9), st.integers(0, 2)),
        st.tuples(st.sampled_from(["retry", "complete"]), st.just(0), st.just(0)),
        st.tuples(st.just("retry job"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 3), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


@dataclass
class History:
    """What was done to one run."""

    database: Database
    run_id: int
    claims: list[Claim] = field(default_factory=list[Claim])
    """All that were ever made: some were overtaken, some ended their job."""
    calls: int = 0
    pages: int = 0
    ends: int = 0

    async def claim(self, first: int, most: int) -> None:
        jobs = await self.database.read(job_store.unfinished, [self.run_id], 0, 100)
        wanted = [job.id for job in jobs[first % len(jobs) :][:most]] if jobs else []
        self.claims += (await write(self.database, wanted=wanted)).claimed.values()

    async def end(self, state: JobState, which: int, follow_ups: int) -> None:
        if not self.claims:
            return
        claim = self.claims[which % len(self.claims)]
        self.pages += follow_ups
        found = [shelf_job("novels", self.pages - n) for n in range(follow_ups)]
        if state is not JobState.SUCCEEDED:
            found = []
        self.calls += 1
        await write(self.database, [finished(claim, state, follow_ups=found, reason="no luck")])

    async def retry(self, job: int | None = None) -> None:
        try:
            if job is None:
                await self.database.transaction(runs.retry_failed, self.run_id)
            else:
                await self.database.transaction(runs.retry_job, await self.database.read(_some_job, self.run_id, job))
        except RunCanceled:
            assert (await shown(self.database, self.run_id)).status is RunState.CANCELED

    async def do(self, step: str, first: int, second: int) -> None:
        match step:
            case "claim":
                await self.claim(first, second)
            case "retry":
                await self.retry()
            case "retry job":
                await self.retry(first)
            case "cancel" if first == 0:
                await self.database.transaction(runs.cancel, self.run_id)
            case "complete":
                await self.database.transaction(runs.complete, self.run_id, TERMS.planning["shelves"])
            case _ if step in ENDS:
                await self.end(JobState(step), first, second)
            case _:
                pass

    async def check(self, before: RunState) -> RunState:
        run = await assert_counted(self.database, self.run_id)
        assert run.calls == self.calls
        assert (run.status in OPEN_RUNS) == (run.ended_jobs < run.total_jobs and run.status is not RunState.CANCELED)
        assert await self.database.read(_has_active_key, self.run_id) == (run.status in ACTIVE_RUNS)
        self.ends += run.status is RunState.FINALIZING and before is not RunState.FINALIZING
        assert await self.database.read(told_ends, self.run_id) == self.ends
        return run.status


def _some_job(tx: Transaction, run_id: int, which: int) -> int:
    ids = [row.id for row in tx.execute(select(page_jobs.c.id).where(page_jobs.c.run_id == run_id))]
    return ids[which % len(ids)]


def _has_active_key(tx: Transaction, run_id: int) -> bool:
    key = tx.execute(select(collection_runs.c.active_key).where(collection_runs.c.id == run_id)).scalar_one()
    return key is not None


@pytest.mark.every_server
@settings(
    max_examples=examples(12),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(example=steps)
async def test_counters_equal_a_recount_after_any_history(database: Database, example: list[tuple[str, int, int]]):
    run_id, _ = await begun(database, f"user {next(_users)}", [shelf_job("novels"), shelf_job("poems")])
    history, status = History(database, run_id), RunState.PLANNING
    for step, first, second in example:
        await history.do(step, first, second)
        status = await history.check(status)


async def work(database: Database, run_id: int, seed: int) -> int:
    """One of several committers: claims whatever is unfinished, also from others, and ends it; how many it ended."""
    draw, ended = random.Random(seed), 0
    while (await shown(database, run_id)).status in OPEN_RUNS:
        jobs = await database.read(job_store.unfinished, [run_id], 0, 100)
        wanted = [job.id for job in draw.sample(jobs, min(len(jobs), 6))]
        try:
            claims = (await write(database, wanted=wanted)).claimed.values()
            results = [finished(claim, draw.choice(ENDS), follow_ups=_next(claim)) for claim in claims]
            draw.shuffle(results)
            ended += len(results)
            await write(database, results)
        except DatabaseUnavailable:  # ten deadlocks in a row
            continue
    return ended


def _next(claim: Claim) -> list[job_store.JobSpec]:
    name, _, page = claim.job.spec.resource.removeprefix("shelf:").partition(" ")
    number = int(claim.job.spec.page.removeprefix("page ")) if claim.job.spec.page != "first" else 0
    return [shelf_job(f"{name} {page}".strip(), number + 1)] if number < 3 else []


def _states(tx: Transaction) -> Counter[str]:
    counted = select(page_jobs.c.status, func.count()).group_by(page_jobs.c.status)
    return Counter({row[0]: row[1] for row in tx.execute(counted)})


@pytest.mark.every_server
@pytest.mark.race
async def test_concurrent_writers_end_each_job_once_and_the_run_once(database: Database):
    run_id, _ = await begun(database, specs=[shelf_job(f"shelf {n}") for n in range(12)])

    brought = sum(await asyncio.gather(*(work(database, run_id, seed) for seed in range(5))))

    run = await assert_counted(database, run_id)
    assert run.status is RunState.FINALIZING
    assert run.calls == brought
    assert await database.read(told_ends, run_id) == 1


@pytest.mark.every_server
@pytest.mark.race
async def test_a_run_canceled_during_concurrent_writes_has_no_open_job(database: Database):
    run_id, _ = await begun(database, specs=[shelf_job(f"shelf {n}") for n in range(12)])

    async def cancel() -> bool:
        while (await database.read(recount, run_id))["succeeded_jobs"] < 3:
            await asyncio.sleep(0)
        return await database.transaction(runs.cancel, run_id) is not None

    _, *results = await asyncio.gather(cancel(), *(work(database, run_id, seed) for seed in range(4)))

    assert all(isinstance(each, int) for each in results)
    run = await assert_counted(database, run_id)
    assert run.status is RunState.CANCELED
    assert run.ended_jobs == run.total_jobs
    assert set(await database.read(_states)) <= {*ENDS, JobState.CANCELED} - {JobState.READY}
