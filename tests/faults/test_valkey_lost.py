"""Valkey forgets everything, or the last moments: what is unfinished is known to SQL, and the runs complete."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
from chaos.deployment import Servers, Site
from chaos.servers import LosableValkey
from chaos.worker import LEADING

from tests.faults.conftest import CALM, LIMITS, Open, assert_all_is_well
from tests.servers.registry import record_used, skip_or_fail
from tests.servers.valkey import ServerMissing, redis_binary, version_of
from tests.waiting import look_again, patience
from tidegate.primitives.gate import BucketStatus
from tidegate.systems.github.settings import POOL
from tidegate_simulators.github import Behaviour, FaultKind, LimitSettings, Sizes

pytestmark = pytest.mark.crash

LONG = Sizes(issues=320, pulls=210, commits=330)
SLOW = Behaviour(latency_ms=20, error_pause_s=0, hang_s=0, drip_s=0)


async def lose(it: Site, losing: Callable[[], None], *, after_calls: int) -> list[int]:
    """Two workers collect; in the middle of it the server is lost."""
    await it.working()
    await it.working()
    run_ids = await it.begin(*it.logins)
    await it.github.until_arrived(after_calls)
    await asyncio.to_thread(losing)
    await it.until_over(run_ids)
    return run_ids


@pytest.mark.parametrize("after_calls", [1, 9, 20])
async def test_a_flushed_server_is_rebuilt_from_sql(site: Open, losable: LosableValkey, after_calls: int):
    async with site(users=2, repositories=2, sizes=LONG, behaviour=SLOW) as it:
        run_ids = await lose(it, losable.flush, after_calls=after_calls)
        await assert_all_is_well(it, run_ids)


async def test_a_server_that_restarts_empty_is_rebuilt_from_sql(site: Open, losable: LosableValkey):
    async with site(users=2, repositories=2, sizes=LONG, behaviour=SLOW) as it:
        run_ids = await lose(it, losable.restart, after_calls=12)
        await assert_all_is_well(it, run_ids)


async def test_a_killed_server_that_keeps_its_data_continues(site: Open):
    with LosableValkey(keeps=True) as server:
        servers = Servers(valkey_url=server.url)
        async with site(servers=servers, users=2, repositories=2, sizes=LONG, behaviour=SLOW) as it:
            run_ids = await lose(it, server.restart, after_calls=12)
            await assert_all_is_well(it, run_ids)


async def test_a_server_with_restored_old_data_is_updated_from_sql(site: Open, losable: LosableValkey):
    """As one that saves snapshots: what it knows of jobs and permits is old, and every lease still lasts."""
    async with site(users=2, repositories=2, sizes=LONG, behaviour=SLOW, membership={}) as it:
        await it.working()
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.github.until_arrived(8)
        await asyncio.to_thread(losable.snapshot)
        await it.github.until_arrived(20)
        await asyncio.to_thread(losable.restart)
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)


async def test_a_server_that_lost_its_last_writes_is_updated_from_sql(site: Open, losable: LosableValkey):
    """It knows every process and every lease, and nothing of a run that was begun a moment before it died."""
    async with site(users=2, repositories=2, behaviour=SLOW, membership={}) as it:
        worker = await it.start()
        await worker.says(LEADING)
        await it.until_recovered()
        await asyncio.to_thread(losable.snapshot)
        hold = it.github.hold("/users/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived()
        await asyncio.to_thread(losable.restart)
        hold.release()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)


async def test_a_flushed_redis_is_rebuilt_from_sql(site: Open):
    try:
        binary = redis_binary()
    except ServerMissing as missing:
        skip_or_fail("Redis", str(missing))
    record_used("Redis", version_of(binary))
    with LosableValkey(binary=binary) as server:
        servers = Servers(valkey_url=server.url)
        async with site(servers=servers, users=2, repositories=2, sizes=LONG, behaviour=SLOW) as it:
            run_ids = await lose(it, server.flush, after_calls=12)
            await assert_all_is_well(it, run_ids)


async def test_workers_waiting_for_permits_are_woken_after_a_flush(site: Open, losable: LosableValkey):
    """Nothing is under way when it happens: only the leader's heartbeat can tell."""
    hold_all = {"concurrency": 1, "per_minute": 100_000, "floor": 0}
    async with site(repositories=3, behaviour=CALM, limits=hold_all) as it:
        await it.working()
        hold = it.github.hold("/users/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived()
        await asyncio.to_thread(losable.flush)
        hold.release()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)


@pytest.mark.parametrize("is_leader_alive", [True, False])
async def test_a_flush_is_detected_immediately_and_not_at_the_next_heartbeat(
    site: Open, losable: LosableValkey, is_leader_alive: bool
):
    """A process that waits for jobs learns from the server that its group is gone. Heartbeats are a minute apart
    here."""
    rare = {"lease": 60, "renew_every": 50}
    async with site(repositories=3, membership=rare, limits=LIMITS | {"concurrency": 1}) as it:
        leader = await it.start()
        await leader.says(LEADING)
        await it.working()
        hold = it.github.hold("/users/", most=1)
        run_ids = await it.begin(*it.logins)
        await hold.arrived()
        if not is_leader_alive:
            leader.kill()
            await leader.ends()
        await asyncio.to_thread(losable.flush)
        hold.release()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)


async def until_waiting(it: Site, reason: str) -> None:
    """Wait until the only token may make no call, for this reason."""
    async with patience():
        while not any(reason == bucket.reason for bucket in await buckets(it)):
            await look_again()


async def buckets(it: Site) -> list[BucketStatus]:
    """What is known of the only token."""
    return [bucket for one in (await it.parts.gate.status(POOL)).credentials for bucket in one.buckets]


async def test_an_exhausted_window_stays_exhausted_after_a_loss_of_data(site: Open, losable: LosableValkey):
    """It is written down that nothing is left: nobody has to ask GitHub, who would refuse."""
    limits = LimitSettings(quota=10, window_s=4)
    async with site(repositories=4, github_limits=limits, limits=LIMITS | {"concurrency": 3}) as it:
        await it.working()
        run_ids = await it.begin(*it.logins)
        await until_waiting(it, "exhausted")
        await asyncio.to_thread(losable.flush)
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
        assert it.github.report().refused == 0


async def test_a_requested_pause_is_kept_after_a_loss_of_data(site: Open, losable: LosableValkey):
    limits = LimitSettings(pause_s=3, grace_s=0, share_without_retry_after=0)
    async with site(repositories=4, github_limits=limits, limits=LIMITS | {"concurrency": 1}) as it:
        it.github.faults.inject(FaultKind.SECONDARY, route="repo.issues")
        await it.working()
        run_ids = await it.begin(*it.logins)
        await until_waiting(it, "blocked")
        await asyncio.to_thread(losable.flush)
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
        assert it.github.report().refused == 1, "nobody asked before the end of the pause"


async def test_the_calls_of_the_last_minute_count_after_a_loss_of_data(site: Open, losable: LosableValkey):
    few = LIMITS | {"per_minute": 9, "concurrency": 3}
    async with site(repositories=6, limits=few) as it:
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.github.until_arrived(3)
        await until_waiting(it, "minute")
        await asyncio.to_thread(losable.flush)
        await it.until_recovered()
        await until_waiting(it, "minute")
        assert await it.orchestrator.cancel(run_ids[0])
        assert await it.stopped() == [0]
        # Fewer where a process was so slow that others took it for dead: what it had counts as called.
        assert it.github.arrived <= 9, "the minute is not over"


async def test_the_killed_embedded_server_is_restarted_automatically(site: Open):
    async with site(servers=Servers(valkey_url=None), users=2, repositories=2, sizes=LONG, behaviour=SLOW) as it:
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.github.until_arrived(12)
        os.kill((await it.parts.valkey.execute("INFO", "server"))["process_id"], signal.SIGKILL)
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
