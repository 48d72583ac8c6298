"""The document store fails after the upstream answered: the answer is kept, and nobody is asked again."""

import pytest
from chaos.deployment import Servers
from chaos.servers import LosableValkey
from sqlalchemy import func, select

from tests.faults.conftest import Open, assert_all_is_well
from tests.servers.mongo import mongo_database, mongo_port
from tests.servers.proxy import Proxy
from tests.waiting import look_again, patience
from tidegate.engine.lifecycle import JobState
from tidegate.engine.tables import parked_answers
from tidegate.storage.sql import Transaction

pytestmark = pytest.mark.crash


def parked(tx: Transaction) -> int:
    return tx.execute(select(func.count()).select_from(parked_answers)).scalar_one()


async def test_an_unwritable_answer_is_parked_and_costs_no_second_call(site: Open, losable: LosableValkey):
    async with mongo_database() as url, Proxy(mongo_port()) as wire:
        there = url.replace(str(mongo_port()), str(wire.port)) + "?serverSelectionTimeoutMS=300"
        servers = Servers(valkey_url=losable.url, documents_url=url, documents_for_workers=there)
        async with site(servers=servers, repositories=3) as it:
            worker = await it.start(first_pause_ms=100)
            hold = it.github.hold("/repositories/")
            run_ids = await it.begin(*it.logins)
            await hold.arrived(3)  # the first list of each repository
            await it.until_jobs(JobState.SUCCEEDED, 3)
            await wire.refuse()
            hold.release()
            async with patience():
                while await it.parts.database.read(parked) < 3:
                    await look_again()
            # Whoever got them dies; the answers are in SQL.
            worker.kill()
            await worker.ends()
            await wire.listen()
            await it.start(first_pause_ms=100)
            await it.until_over(run_ids)

            await assert_all_is_well(it, run_ids)
            assert it.github.arrived == it.github.perfect_calls().total
            assert await it.parts.database.read(parked) == 0
            assert {job.attempt_count for job in await it.jobs(run_ids[0])} == {1}
