"""A worker is killed with -9, wherever it is: its jobs run again elsewhere; nothing is lost, doubled or miscounted."""

import pytest
from chaos.worker import LEADING

from tests.faults.conftest import Open, assert_all_is_well
from tests.waiting import random_moment
from tidegate_simulators.github import Behaviour, LimitSettings, Sizes

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    "point",
    [
        "read.after:1",  # it has a message, and has told nobody
        "commit.before:1",
        "commit.inside:1",  # the claim is written and not committed
        "commit.after:1",  # claimed, not called
        "call.before:2",
        "call.after:1",  # answered, and the answer is lost with it
        "commit.inside:2",
        "commit.after:2",  # ended in SQL, not settled: its follow-ups are at no gate
        "settle.after:1",
        "commit.inside:4",
        "commit.after:4",
        "settle.before:3",
        "complete.before:1",  # the run has no job left, and is not complete
        "complete.after:1",  # complete, and the event is not removed
        "rebuild.after:1",
    ],
)
async def test_a_worker_that_dies_at_any_step_loses_repeats_and_miscounts_nothing(site: Open, point: str):
    async with site() as it:
        run_ids = await it.begin(*it.logins)
        doomed = await it.start(die_at=point)
        assert await doomed.ends() == -9, f"it never came to {point}"
        await it.working()
        await it.until_over(run_ids)

        await assert_all_is_well(it, run_ids)
        assert await it.stopped() == [0]


async def test_a_small_quota_is_never_exceeded(site: Open):
    """With the reserve that settings have by default, by two processes at once, one of which dies."""
    slow = Behaviour(latency_ms=20, error_pause_s=0, hang_s=0, drip_s=0)
    quota = LimitSettings(quota=60, window_s=5)
    bounds = {"concurrency": 20, "per_minute": 100_000}
    async with site(users=2, repositories=24, github_limits=quota, behaviour=slow, limits=bounds) as it:
        run_ids = await it.begin(*it.logins)
        victim = await it.start()
        await it.working()
        await it.github.until_arrived(70)
        await random_moment(0.05)
        victim.kill()
        await it.working()
        await it.until_over(run_ids)

        await assert_all_is_well(it, run_ids)
        used = [window.used for window in it.github.report().windows if window.bucket == "core"]
        assert max(used) <= 59, "one call is kept"


async def test_jobs_of_a_killed_worker_run_again_elsewhere(site: Open):
    """With the lease that processes have by default; and the one that dies is the leader, who would notice."""
    async with site(repositories=3, membership={}) as it:
        victim = await it.start()
        await victim.says(LEADING)
        hold = it.github.hold("/repositories/", most=3)
        run_ids = await it.begin(*it.logins)
        await hold.arrived(3)
        await it.working()

        victim.kill()
        await it.github.until_arrived(3 + 3 + 3)
        hold.release()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)


async def test_workers_killed_at_random_times_lose_repeat_and_miscount_nothing(site: Open):
    """Three die, a moment after the others' first, second and third call; a fourth ends the work."""
    slow = Behaviour(latency_ms=30, error_pause_s=0, hang_s=0, drip_s=0)
    sizes = Sizes(issues=120, pulls=60, commits=130)
    async with site(users=2, repositories=4, sizes=sizes, behaviour=slow) as it:
        run_ids = await it.begin(*it.logins)
        for calls in (5, 17, 29):
            victim = await it.start()
            await it.github.until_arrived(calls)
            await random_moment(0.05)
            victim.kill()
        await it.working()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
