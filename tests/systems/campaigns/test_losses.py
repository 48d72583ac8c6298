"""A server that goes away and comes back, with its data or without: work goes on, and nothing happens twice."""

import asyncio
from pathlib import Path

import pytest
from chaos.servers import LosableValkey

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.shop import CAMPAIGN
from tests.systems.campaigns.working import Works, works_at
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
        async with connected(server.url) as valkey, works_at(url, valkey, blocking=is_blocking) as works:
            await works.open(total=1000, kind=POINTS, points=1)
            await works.instance("one")
            crowd = asyncio.gather(*(_enter(works, user) for user in USERS))
            await works.until(lambda: _some_are_decided(works))
            await asyncio.to_thread(server.restart)
            await crowd
            # Who was in line when the server died may have been forgotten, and comes again.
            await asyncio.gather(*(_enter(works, user) for user in USERS))
            await works.until_decided(len(USERS))

            assert {outcome for outcome, _ in (await works.rows()).values()} == {"issued"}
            assert [await works.campaigns.points_of(user) for user in USERS[::20]] == [1] * 10
            await works.until_gone()
    finally:
        server.kill()


async def _enter(works: Works, user: str) -> None:
    while True:
        try:
            assert (await works.campaigns.enter(CAMPAIGN, user, "key")).answer == "ACCEPTED"
        except Unavailable:
            await look_again()
        else:
            return


async def _some_are_decided(works: Works) -> bool:
    return len(await works.rows()) > 0
