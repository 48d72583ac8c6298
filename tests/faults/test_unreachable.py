"""A server cannot be reached for a while: nothing is done that needs it, and everything goes on by itself."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from chaos.deployment import Servers, Site
from chaos.servers import LosableValkey

from tests.faults.conftest import CALM, LIMITS, PATIENT, Open, assert_all_is_well
from tests.servers.proxy import Proxy
from tests.servers.sql import SqlServer, sql_server
from tidegate.engine.lifecycle import JobState
from tidegate_simulators.github import Sizes

pytestmark = pytest.mark.crash

FEW = LIMITS | {"concurrency": 4}
"""Permits: three calls find the repositories of one user, and four are out at most.

With four repositories these are the first list of each: the other lists of a repository follow its first one.
"""


@pytest.fixture(scope="module")
def postgres() -> SqlServer:
    return sql_server("postgres")


@asynccontextmanager
async def wired(postgres: SqlServer, losable: LosableValkey) -> AsyncGenerator[tuple[Proxy, Servers]]:
    """PostgreSQL, behind a wire that can be cut."""
    async with postgres.database() as name, Proxy(postgres.port) as wire:
        yield (
            wire,
            Servers(
                valkey_url=losable.url,
                database_url=postgres.url(name),
                database_for_workers=postgres.url(name, port=wire.port),
            ),
        )


def wasted(it: Site) -> int:
    """Calls that were paid for and that a perfect collector would not have made."""
    return sum(it.github.report().spent.values()) - it.github.perfect_calls().total


async def test_without_valkey_no_call_is_made_without_a_permit(site: Open, losable: LosableValkey):
    async with Proxy(losable.port) as wire:
        servers = Servers(valkey_url=losable.url, valkey_for_workers=f"redis://127.0.0.1:{wire.port}")
        async with site(servers=servers, repositories=4, limits=FEW, membership=PATIENT) as it:
            await it.working()
            hold = it.github.hold("/repositories/")
            run_ids = await it.begin(*it.logins)
            await hold.arrived(4)

            await wire.refuse()
            hold.release()
            await it.until_jobs(JobState.SUCCEEDED, 3 + 4)  # the answers that were under way are kept
            assert it.github.arrived == 3 + 4  # and no other call is made

            await wire.listen()
            await it.until_over(run_ids)
            await assert_all_is_well(it, run_ids)
            assert wasted(it) == 0


async def test_without_sql_results_are_held_and_no_message_is_acknowledged(
    site: Open, losable: LosableValkey, postgres: SqlServer
):
    async with (
        wired(postgres, losable) as (wire, servers),
        site(servers=servers, repositories=4, limits=FEW, membership=PATIENT) as it,
    ):
        await it.working()
        hold = it.github.hold("/repositories/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived(4)

        await wire.refuse()
        hold.release()
        answered = it.github.report().calls
        while it.github.report().calls < answered + 4:
            await it.parts.jobs.status()
        assert (await it.parts.jobs.status()).pending == 4
        assert it.github.arrived == 3 + 4

        await wire.listen()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
        assert wasted(it) == 0, "a result that was held is not fetched again"


@pytest.mark.parametrize("after_calls", [0, 3, 5, 9])
async def test_a_commit_with_unknown_outcome_loses_and_repeats_nothing(
    site: Open, losable: LosableValkey, postgres: SqlServer, after_calls: int
):
    """The commit arrives, and the connection breaks before its answer."""
    async with (
        wired(postgres, losable) as (wire, servers),
        site(servers=servers, repositories=3, limits=FEW, membership=PATIENT) as it,
    ):
        await it.working()
        if not after_calls:
            wire.cut_after(b"COMMIT;")

        def cut(_: str) -> None:
            if it.github.arrived == after_calls:
                wire.cut_after(b"COMMIT;")

        it.github.on_call = cut
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
        assert wasted(it) == 0


async def test_repeatedly_broken_sql_connections_cost_no_call(site: Open, losable: LosableValkey, postgres: SqlServer):
    sizes = Sizes(issues=320, pulls=210, commits=330)
    async with (
        wired(postgres, losable) as (wire, servers),
        site(servers=servers, users=2, repositories=2, sizes=sizes, behaviour=CALM, membership=PATIENT) as it,
    ):
        await it.working()
        await it.working()
        run_ids = await it.begin(*it.logins)
        for calls in (4, 8, 12, 16):
            await it.github.until_arrived(calls)
            wire.cut()
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)
        assert wasted(it) == 0
