"""Consumer pools decide entries once and in order; they start with the first entry and stop when it is quiet."""

import asyncio

from tests.systems.campaigns.shop import CAMPAIGN
from tests.systems.campaigns.working import Works
from tidegate.systems.campaigns.model import POINTS


async def test_the_first_entry_starts_a_consumer_pool_which_is_removed_when_idle(works: Works):
    one = await works.instance()
    await works.open()
    assert one.manager.pools == [], "nobody has entered"

    await works.enter("ann", "bob")
    await works.until_decided(2)
    assert await works.rows() == {"ann": ("issued", 1), "bob": ("issued", 2)}
    assert [pool.campaign for pool in one.manager.pools] == [CAMPAIGN]
    assert (await works.status()).processes == ["one"]

    await works.until_gone()
    assert one.manager.pools == []
    keys = works.keys()
    assert await works.valkey.execute("SMEMBERS", keys["busy"]) == set()
    assert await works.valkey.execute("EXISTS", keys["wakeups"], keys["woken"], keys["processes"]) == 0
    assert (await works.status()).remembered == 2, "the door does not forget"

    await works.enter("eve")
    await works.until_decided(3)


async def test_the_first_of_many_users_get_the_whole_stock_one_each_in_order(works: Works):
    await works.open(total=40)
    await works.instance("one")
    await works.instance("two")

    answers = await asyncio.gather(*(works.campaigns.enter(CAMPAIGN, f"user-{n % 60}") for n in range(200)))
    await works.until_decided(40)

    accepted = sorted(answer.number or 0 for answer in answers if answer.answer == "ACCEPTED")
    assert accepted == list(range(1, 41))
    rows = await works.rows()
    assert {number for _, number in rows.values()} == set(accepted)
    assert {outcome for outcome, _ in rows.values()} == {"issued"}
    assert (await works.status()).campaign.issued == 40
    assert {answer.answer.value for answer in answers} == {"ACCEPTED", "DUPLICATE", "SOLD_OUT"}
    assert len(works.told) == 40, "whoever watches is told once"


async def test_a_long_queue_is_shared_by_instances_and_committed_in_batches(works: Works):
    await works.open(total=3000, kind=POINTS, points=1)
    users = [f"user-{n}" for n in range(1500)]
    await asyncio.gather(*(works.campaigns.enter(CAMPAIGN, user) for user in users))
    one, two = await works.instance("one"), await works.instance("two")

    served: set[str] = set()

    async def both_serve() -> bool:
        served.update((await works.status()).processes)
        return len(served) == 2

    await works.until(both_serve)
    await works.until_decided(1500)

    assert (await works.status()).dead == 0
    assert sum([await works.campaigns.points_of(user) for user in users[::100]]) == 15
    for each in (one, two):
        assert all(pool.consumers == 3 for pool in each.manager.pools)


async def test_a_rejected_entry_frees_its_place_for_the_next(works: Works):
    await works.open(total=2, kind="PICKY", stock=2)
    await works.instance()

    await works.enter("no-1", "ann")
    await works.until(lambda: _is_there(works, "no-1"))
    await works.until(lambda: _gets_in(works, "eve"))
    await works.until(lambda: _is_there(works, "eve"))

    status = await works.status()
    assert status.campaign.issued == 2
    assert (await works.rows())["no-1"] == ("refused", 1)
    assert (await works.campaigns.result(CAMPAIGN, "no-1")).reason == "it said no"


async def _is_there(works: Works, user: str) -> bool:
    return user in await works.rows()


async def _gets_in(works: Works, user: str) -> bool:
    return (await works.campaigns.enter(CAMPAIGN, user)).answer in ("ACCEPTED", "DUPLICATE")
