"""What was committed and not yet dispatched, planned by halves, canceled, or left by a worker that is told to stop."""

from collections import Counter

import pytest
from chaos.worker import LEADING, STOPPING

from tests.faults.conftest import LIMITS, PATIENT, Open, assert_all_is_well
from tidegate.engine.lifecycle import JobState, RunState
from tidegate_simulators.github import Sizes

pytestmark = pytest.mark.crash

MANY = 230
"""Repositories: three pages of them."""
ENDLESS = {"lease": 3600}
"""A lease that does not end while a test runs: what happens then was not decided by a lease."""


async def test_a_run_is_found_and_dispatched_when_its_process_dies_before_enqueueing(site: Open):
    """It dies before it has joined: nobody misses it. The leader has looked at everything before, and sleeps."""
    async with site() as it:
        worker = await it.start()
        await worker.says(LEADING)
        await it.until_recovered()
        beginner = await it.start(begin=it.logins[0], die_at="offer.before:1", first_pause_ms=300)
        assert await beginner.ends() == -9
        await it.until_over([1])
        await assert_all_is_well(it, [1])


async def test_follow_ups_are_found_when_their_worker_dies_before_enqueueing(site: Open):
    """Another worker lives all the time, and waits; the dead one was never the leader."""
    async with site(repositories=3, limits=LIMITS | {"concurrency": 1}) as it:
        leader = await it.start()
        await leader.says(LEADING)
        leader.freeze()  # so that the other gets the job
        run_ids = await it.begin(*it.logins)
        doomed = await it.start(die_at="settle.before:1")
        assert await doomed.ends() == -9
        leader.thaw()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)


@pytest.mark.parametrize("point", ["commit.inside:3", "commit.after:3", "settle.before:2", "commit.inside:4"])
async def test_a_partially_planned_run_is_planned_completely_without_duplicates(site: Open, point: str):
    """One call at a time: profile, then the pages of repositories, with a claim and an end for each."""
    few = LIMITS | {"concurrency": 1}
    async with site(repositories=MANY, sizes=Sizes(), events=0, include=[], limits=few) as it:
        run_ids = await it.begin(*it.logins)
        doomed = await it.start(die_at=point)
        assert await doomed.ends() == -9
        assert (await it.orchestrator.show(run_ids[0])).status is RunState.PLANNING
        await it.working()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
        pages = [(job.job_type, job.resource_key, job.page_key) for job in await it.jobs(run_ids[0])]
        assert len(pages) == len(set(pages)) == 1 + 3


async def test_a_canceled_run_starts_no_further_call_and_running_calls_end(site: Open):
    async with site(repositories=4, limits=LIMITS | {"concurrency": 4}, membership=PATIENT) as it:
        await it.working()
        hold = it.github.hold("/repositories/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived(4)
        assert await it.orchestrator.cancel(run_ids[0])
        hold.release()
        assert await it.stopped() == [0]

        assert it.github.arrived == 3 + 4
        (run,) = [await it.orchestrator.show(run_id) for run_id in run_ids]
        assert (run.status, run.succeeded_jobs, run.canceled_jobs) == (RunState.CANCELED, 3, run.total_jobs - 3)
        assert await it.disagreements(run_ids) == []
        assert {job.status for job in await it.jobs(run_ids[0])} == {JobState.SUCCEEDED, JobState.CANCELED}


async def test_a_stopping_worker_finishes_its_jobs_and_takes_no_new_one(site: Open):
    async with site(repositories=4, limits=LIMITS | {"concurrency": 4}, membership=PATIENT) as it:
        leaver = await it.working()
        hold = it.github.hold("/repositories/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived(4)
        leaver.terminate()
        await leaver.says(STOPPING)
        hold.release()
        assert await leaver.ends() == 0

        assert it.github.arrived == 3 + 4
        states = Counter(job.status for job in await it.jobs(run_ids[0]))
        assert states == {JobState.SUCCEEDED: 3 + 4, JobState.ENQUEUED: 4 * 3 - 4}


async def test_jobs_left_by_a_stopping_worker_continue_elsewhere_immediately(site: Open):
    async with site(repositories=4, limits=LIMITS | {"concurrency": 4}, membership=ENDLESS) as it:
        leaver = await it.working()
        hold = it.github.hold("/repositories/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived(4)
        await it.working()
        leaver.terminate()
        await leaver.says(STOPPING)
        hold.release()
        assert await leaver.ends() == 0
        await it.until_over(run_ids)

        await assert_all_is_well(it, run_ids)
        assert sum(it.github.report().spent.values()) == it.github.perfect_calls().total


async def test_a_call_beyond_the_stop_timeout_is_cancelled_and_returned(site: Open):
    """It has 30 s; here it has 0.3 s, which is also too short for the process to leave in good order."""
    async with site(repositories=2, membership=ENDLESS) as it:
        leaver = await it.start(drain_s=0.3)
        hold = it.github.hold("/repositories/", most=1)
        run_ids = await it.begin(*it.logins)
        await hold.arrived()
        await it.working()
        leaver.terminate()
        assert await leaver.ends() == 1, "not in good order, and it says so"
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
