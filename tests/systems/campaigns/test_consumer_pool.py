"""Consumer pools decide entries once and in order; they start with the first entry and stop when it is quiet."""

import asyncio

from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import WorkerHarness
from tidegate.systems.campaigns.model import POINTS


async def test_the_first_entry_starts_a_consumer_pool_which_is_removed_when_idle(workers: WorkerHarness):
    one = await workers.instance()
    await workers.open()
    assert one.manager.pools == [], "nobody has entered"

    await workers.enter("ann", "bob")
    await workers.until_decided(2)
    assert await workers.rows() == {"ann": ("issued", 1), "bob": ("issued", 2)}
    assert [pool.campaign for pool in one.manager.pools] == [CAMPAIGN]
    assert (await workers.status()).processes == ["one"]

    await workers.until_gone()
    assert one.manager.pools == []
    keys = workers.keys()
    assert await workers.valkey.execute("SMEMBERS", keys["busy"]) == set()
    assert await workers.valkey.execute("EXISTS", keys["wakeups"], keys["woken"], keys["processes"]) == 0
    assert (await workers.status()).remembered == 2, "the door does not forget"

    await workers.enter("eve")
    await workers.until_decided(3)


async def test_the_first_of_many_users_get_the_whole_stock_one_each_in_order(workers: WorkerHarness):
    await workers.open(total=40)
    await workers.instance("one")
    await workers.instance("two")

    answers = await asyncio.gather(*(workers.campaigns.enter(CAMPAIGN, f"user-{n % 60}") for n in range(200)))
    await workers.until_decided(40)

    accepted = sorted(answer.number or 0 for answer in answers if answer.answer == "ACCEPTED")
    assert accepted == list(range(1, 41))
    rows = await workers.rows()
    assert {number for _, number in rows.values()} == set(accepted)
    assert {outcome for outcome, _ in rows.values()} == {"issued"}
    assert (await workers.status()).campaign.issued == 40
    assert {answer.answer.value for answer in answers} == {"ACCEPTED", "DUPLICATE", "SOLD_OUT"}
    assert len(workers.told) == 40, "whoever watches is told once"


async def test_a_long_queue_is_shared_by_instances_and_committed_in_batches(workers: WorkerHarness):
    await workers.open(total=3000, kind=POINTS, points=1)
    users = [f"user-{n}" for n in range(1500)]
    await asyncio.gather(*(workers.campaigns.enter(CAMPAIGN, user) for user in users))
    one, two = await workers.instance("one"), await workers.instance("two")

    served: set[str] = set()

    async def both_serve() -> bool:
        served.update((await workers.status()).processes)
        return len(served) == 2

    await workers.until(both_serve)
    await workers.until_decided(1500)

    assert (await workers.status()).dead == 0
    assert sum([await workers.campaigns.points_of(user) for user in users[::100]]) == 15
    for each in (one, two):
        assert all(pool.consumers == 3 for pool in each.manager.pools)


async def test_a_rejected_entry_frees_its_place_for_the_next(workers: WorkerHarness):
    await workers.open(total=2, kind="PICKY", stock=2)
    await workers.instance()

    await workers.enter("no-1", "ann")
    await workers.until(lambda: _is_there(workers, "no-1"))
    await workers.until(lambda: _gets_in(workers, "eve"))
    await workers.until(lambda: _is_there(workers, "eve"))

    status = await workers.status()
    assert status.campaign.issued == 2
    assert (await workers.rows())["no-1"] == ("refused", 1)
    assert (await workers.campaigns.result(CAMPAIGN, "no-1")).reason == "it said no"


async def _is_there(workers: WorkerHarness, user: str) -> bool:
    return user in await workers.rows()


async def _gets_in(workers: WorkerHarness, user: str) -> bool:
    return (await workers.campaigns.enter(CAMPAIGN, user)).answer in ("ACCEPTED", "DUPLICATE")
