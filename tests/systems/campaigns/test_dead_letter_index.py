"""Whose entry is a dead letter is found among many, and as it is now."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.shop import CAMPAIGN
from tests.systems.campaigns.working import Works, works_at
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.results import DeadLetterIndex


@pytest.fixture
async def shop(tmp_path: Path, embedded: Valkey) -> AsyncGenerator[Works]:
    async with works_at(await migrated_file(tmp_path / "works.db"), embedded) as opened:
        yield opened


async def _bury(shop: Works, payload: str) -> str:
    dead = ("dead.message", "1-1", "dead.deliveries", 5, "dead.reason", "x", "dead.at_ms", 1)
    return (await shop.valkey.execute("XADD", shop.keys()["dead"], "*", "payload", payload, *dead)).decode()


async def _bury_user(shop: Works, user: str, number: int) -> str:
    return await _bury(shop, f'{{"number":{number},"epoch":1,"at_ms":1,"user":"{user}","key":"k"}}')


@pytest.mark.full
async def test_the_oldest_of_many_dead_letters_is_found(shop: Works):
    await shop.open(total=5000)
    await shop.valkey.execute("HSET", shop.keys()["entries"], "first", "1|k", "last", "1300|k", "waits", "1301|k")
    await _bury_user(shop, "first", 1)
    await _bury(shop, "no JSON")
    for number in range(2, 1300):
        await _bury_user(shop, f"user-{number}", number)
    assert (await shop.campaigns.result(CAMPAIGN, "first")).state == "failed"
    assert (await shop.campaigns.result(CAMPAIGN, "last")).state == "pending"

    await _bury_user(shop, "last", 1300)

    assert (await shop.campaigns.result(CAMPAIGN, "last")).state == "failed", "what came since is read too"
    assert (await shop.campaigns.result(CAMPAIGN, "waits")).state == "pending"


async def test_a_removed_dead_letter_is_not_listed_and_a_recreated_one_is(shop: Works):
    users = DeadLetterIndex(shop.valkey)
    await _bury_user(shop, "other", 2)
    for _ in range(2):
        ident = await _bury_user(shop, "ann", 1)
        found = await users.letter(CAMPAIGN, "ann", 1)
        assert found is not None
        assert found.id == ident
        assert await users.letter(CAMPAIGN, "ann", 7) is None, "that is another entry of hers"
        await shop.valkey.execute("XDEL", shop.keys()["dead"], ident)
        assert await users.letter(CAMPAIGN, "ann", 1) is None


async def test_after_a_loss_of_data_the_index_is_rebuilt(shop: Works):
    users = DeadLetterIndex(shop.valkey)
    await _bury_user(shop, "ann", 1)
    assert await users.letter(CAMPAIGN, "ann", 1) is not None
    await shop.valkey.execute("FLUSHALL")
    assert await users.letter(CAMPAIGN, "ann", 1) is None
    await _bury_user(shop, "ann", 1)
    assert await users.letter(CAMPAIGN, "ann", 1) is not None
