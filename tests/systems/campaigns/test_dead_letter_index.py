"""Whose entry is a dead letter is found among many, and as it is now."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import WorkerHarness, worker_harness_at
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.results import DeadLetterIndex


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey) -> AsyncGenerator[WorkerHarness]:
    async with worker_harness_at(await migrated_file(tmp_path / "works.db"), embedded) as opened:
        yield opened


async def _bury(harness: WorkerHarness, payload: str) -> str:
    dead = ("dead.message", "1-1", "dead.deliveries", 5, "dead.reason", "x", "dead.at_ms", 1)
    return (await harness.valkey.execute("XADD", harness.keys()["dead"], "*", "payload", payload, *dead)).decode()


async def _bury_user(harness: WorkerHarness, user: str, number: int) -> str:
    return await _bury(harness, f'{{"number":{number},"epoch":1,"at_ms":1,"user":"{user}","key":"k"}}')


@pytest.mark.full
async def test_the_oldest_of_many_dead_letters_is_found(harness: WorkerHarness):
    await harness.open(total=5000)
    await harness.valkey.execute("HSET", harness.keys()["entries"], "first", "1|k", "last", "1300|k", "waits", "1301|k")
    await _bury_user(harness, "first", 1)
    await _bury(harness, "no JSON")
    for number in range(2, 1300):
        await _bury_user(harness, f"user-{number}", number)
    assert (await harness.campaigns.result(CAMPAIGN, "first")).state == "failed"
    assert (await harness.campaigns.result(CAMPAIGN, "last")).state == "pending"

    await _bury_user(harness, "last", 1300)

    assert (await harness.campaigns.result(CAMPAIGN, "last")).state == "failed", "what came since is read too"
    assert (await harness.campaigns.result(CAMPAIGN, "waits")).state == "pending"


async def test_a_removed_dead_letter_is_not_listed_and_a_recreated_one_is(harness: WorkerHarness):
    users = DeadLetterIndex(harness.valkey)
    await _bury_user(harness, "other", 2)
    for _ in range(2):
        ident = await _bury_user(harness, "ann", 1)
        found = await users.letter(CAMPAIGN, "ann", 1)
        assert found is not None
        assert found.id == ident
        assert await users.letter(CAMPAIGN, "ann", 7) is None, "that is another entry of hers"
        await harness.valkey.execute("XDEL", harness.keys()["dead"], ident)
        assert await users.letter(CAMPAIGN, "ann", 1) is None


async def test_after_a_loss_of_data_the_index_is_rebuilt(harness: WorkerHarness):
    users = DeadLetterIndex(harness.valkey)
    await _bury_user(harness, "ann", 1)
    assert await users.letter(CAMPAIGN, "ann", 1) is not None
    await harness.valkey.execute("FLUSHALL")
    assert await users.letter(CAMPAIGN, "ann", 1) is None
    await _bury_user(harness, "ann", 1)
    assert await users.letter(CAMPAIGN, "ann", 1) is not None
