"""A server that goes away and comes back, with its data or without: work goes on, and nothing happens twice."""

import asyncio
from pathlib import Path

import pytest
from chaos.servers import LosableValkey

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import WorkerHarness, worker_harness_at
from tests.waiting import look_again
from tidegate.core.errors import Unavailable
from tidegate.storage.valkey.connection import connected
from tidegate.systems.campaigns.model import POINTS

USERS = [f"user-{n}" for n in range(200)]


@pytest.mark.parametrize("is_blocking", [True, False], ids=["blocking", "looking"])
@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "lost"])
async def test_a_server_killed_under_load_costs_only_time(keeps: bool, is_blocking: bool, tmp_path: Path):
    server = LosableValkey(keeps=keeps)
    url = await migrated_file(tmp_path / "works.db")
    try:
        async with connected(server.url) as valkey, worker_harness_at(url, valkey, blocking=is_blocking) as workers:
            await workers.open(total=1000, kind=POINTS, points=1)
            await workers.instance("one")
            crowd = asyncio.gather(*(_enter(workers, user) for user in USERS))
            await workers.until(lambda: _some_are_decided(workers))
            await asyncio.to_thread(server.restart)
            await crowd
            # Who was in line when the server died may have been forgotten, and comes again.
            await asyncio.gather(*(_enter(workers, user) for user in USERS))
            await workers.until_decided(len(USERS))

            assert {outcome for outcome, _ in (await workers.rows()).values()} == {"issued"}
            assert [await workers.campaigns.points_of(user) for user in USERS[::20]] == [1] * 10
            await workers.until_gone()
    finally:
        server.kill()


async def _enter(workers: WorkerHarness, user: str) -> None:
    while True:
        try:
            assert (await workers.campaigns.enter(CAMPAIGN, user, "key")).answer == "ACCEPTED"
        except Unavailable:
            await look_again()
        else:
            return


async def _some_are_decided(workers: WorkerHarness) -> bool:
    return len(await workers.rows()) > 0
