"""Valkey forgets everything, or the last moments: what is unfinished is known to SQL, and the runs complete."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
from chaos.deployment import Servers, Site
from chaos.servers import LosableValkey
from chaos.worker import LEADING

from tests.faults.conftest import CALM, Open, assert_all_is_well
from tests.servers.registry import record_used, skip_or_fail
from tests.servers.valkey import ServerMissing, redis_binary, version_of
from tidegate.simulators.github import Manners, Sizes

pytestmark = pytest.mark.crash

LONG = Sizes(issues=320, pulls=210, commits=330)
SLOW = Manners(latency_ms=20, error_pause_s=0, hang_s=0, drip_s=0)


async def lose(it: Site, losing: Callable[[], None], *, after_calls: int) -> list[int]:
    """Two workers collect; in the middle of it the server is lost."""
    await it.working()
    await it.working()
    run_ids = await it.begin(*it.logins)
    await it.github.until_arrived(after_calls)
    await asyncio.to_thread(losing)
    await it.until_over(run_ids, within_s=40)
    return run_ids


@pytest.mark.parametrize("after_calls", [1, 9, 20])
async def test_a_flushed_server_is_rebuilt_from_sql(site: Open, losable: LosableValkey, after_calls: int):
    async with site(users=2, repositories=2, sizes=LONG, manners=SLOW) as it:
        run_ids = await lose(it, losable.flush, after_calls=after_calls)
        await assert_all_is_well(it, run_ids)


async def test_a_server_that_restarts_empty_is_rebuilt_from_sql(site: Open, losable: LosableValkey):
    async with site(users=2, repositories=2, sizes=LONG, manners=SLOW) as it:
        run_ids = await lose(it, losable.restart, after_calls=12)
        await assert_all_is_well(it, run_ids)


async def test_a_server_that_is_killed_and_keeps_its_data_goes_on(site: Open):
    with LosableValkey(keeps=True) as server:
        servers = Servers(valkey_url=server.url)
        async with site(servers=servers, users=2, repositories=2, sizes=LONG, manners=SLOW) as it:
            run_ids = await lose(it, server.restart, after_calls=12)
            await assert_all_is_well(it, run_ids)


async def test_a_server_that_comes_back_with_old_data_is_brought_up_to_date(site: Open, losable: LosableValkey):
    """As one that saves snapshots: what it knows of jobs and permits is old, and every lease still lasts."""
    async with site(users=2, repositories=2, sizes=LONG, manners=SLOW, presence={}) as it:
        await it.working()
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.github.until_arrived(8)
        await asyncio.to_thread(losable.snapshot)
        await it.github.until_arrived(20)
        await asyncio.to_thread(losable.restart)
        await it.until_over(run_ids, within_s=40)
        await assert_all_is_well(it, run_ids)


async def test_a_server_that_lost_its_last_moments_is_brought_up_to_date(site: Open, losable: LosableValkey):
    """It knows every process and every lease, and nothing of a run that was begun a moment before it died."""
    async with site(users=2, repositories=2, manners=SLOW, presence={}) as it:
        worker = await it.start()
        await worker.says(LEADING)
        await it.until_recovered()
        await asyncio.to_thread(losable.snapshot)
        hold = it.github.hold("/users/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived()
        await asyncio.to_thread(losable.restart)
        hold.release()
        await it.until_over(run_ids, within_s=20)
        await assert_all_is_well(it, run_ids)


async def test_a_flushed_redis_is_rebuilt_from_sql(site: Open):
    try:
        binary = redis_binary()
    except ServerMissing as missing:
        skip_or_fail("Redis", str(missing))
    record_used("Redis", version_of(binary))
    with LosableValkey(binary=binary) as server:
        servers = Servers(valkey_url=server.url)
        async with site(servers=servers, users=2, repositories=2, sizes=LONG, manners=SLOW) as it:
            run_ids = await lose(it, server.flush, after_calls=12)
            await assert_all_is_well(it, run_ids)


async def test_workers_that_wait_for_permits_wake_after_a_flush(site: Open, losable: LosableValkey):
    """Nothing is under way when it happens: only the leader's heartbeat can tell."""
    hold_all = {"concurrency": 1, "per_minute": 100_000, "floor": 0}
    async with site(repositories=3, manners=CALM, limits=hold_all) as it:
        await it.working()
        hold = it.github.hold("/users/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived()
        await asyncio.to_thread(losable.flush)
        hold.release()
        await it.until_over(run_ids, within_s=20)
        await assert_all_is_well(it, run_ids)


async def test_the_embedded_server_is_killed_and_comes_back_by_itself(site: Open):
    async with site(servers=Servers(valkey_url=None), users=2, repositories=2, sizes=LONG, manners=SLOW) as it:
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.github.until_arrived(12)
        os.kill((await it.parts.valkey.execute("INFO", "server"))["process_id"], signal.SIGKILL)
        await it.until_over(run_ids, within_s=40)
        await assert_all_is_well(it, run_ids)
