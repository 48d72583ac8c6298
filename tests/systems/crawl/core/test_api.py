"""Products and stored answers, as people ask for them."""

from datetime import timedelta

import pytest

from tests.servers.migrated import on_sqlite
from tests.systems.crawl.core.plain import HOST, SETTINGS, Stall, later
from tidegate.core.errors import InvalidArgument, NotFound, ValkeyUnavailable
from tidegate.core.telemetry import metrics
from tidegate.systems.crawl import retention
from tidegate.systems.crawl.opening import CrawlGauges
from tidegate.systems.crawl.raws import Raws
from tidegate.systems.crawl.stages import STAGES, RawState

MINI, DETAIL, OPTION = STAGES


async def filled(stall: Stall, products: int = 5) -> int:
    names = [f"p{n}" for n in range(products)]
    run_id = await stall.begin(*names)
    for name in names:
        await stall.whole(run_id, name)
    await stall.finalize(run_id)
    return run_id


@pytest.mark.every_server
async def test_products_are_paginated(stall: Stall):
    await filled(stall)
    later(stall.database)
    second = await stall.begin(*(f"p{n}" for n in range(4)), crawl="daily")
    await stall.finalize(second)
    first = await stall.products.page(limit=2)
    assert [product.product_id for product in first.products] == ["p0", "p1"]
    rest = await stall.products.page(limit=100, after=first.next_after)
    assert ([product.product_id for product in rest.products], rest.next_after) == (["p2", "p3", "p4"], None)
    assert [p.product_id for p in (await stall.products.page(is_gone=True)).products] == ["p4"]
    assert (await stall.products.page(host="elsewhere")).products == []
    assert len((await stall.products.page(host=HOST, shop_id="s1", is_gone=False)).products) == 4
    assert [await stall.products.count(is_gone=gone) for gone in (None, True, False)] == [5, 1, 4]
    assert await stall.products.count(host="elsewhere") == 0


@pytest.mark.every_server
async def test_stored_answers_are_paginated(stall: Stall):
    run_id = await filled(stall)
    first = await stall.raws.page(limit=10)
    rest = await stall.raws.page(limit=10, after=first.next_after)
    assert (len(first.raws), len(rest.raws), rest.next_after) == (10, 5, None)
    assert len((await stall.raws.page(run_id=run_id, host=HOST, product_id="p1", state=RawState.PROCESSED)).raws) == 3
    one = first.raws[0]
    assert await stall.raws.get(one.id) == one
    assert await stall.raws.body(one.id) == b'{"said":"hello"}'


async def test_unknown_resources_are_reported(local: Stall):
    with pytest.raises(NotFound):
        await local.product("p1")
    with pytest.raises(NotFound):
        await local.raws.get(1)
    with pytest.raises(NotFound):
        await local.raws.body(1)


async def test_invalid_arguments_are_refused(local: Stall):
    for limit in (0, -1, 1_001):
        with pytest.raises(InvalidArgument):
            await local.products.page(limit=limit)
        with pytest.raises(InvalidArgument):
            await local.raws.page(limit=limit)
    for after in ("", "p1", "/p1", "host/"):
        with pytest.raises(InvalidArgument):
            await local.products.page(after=after)
    for raw_id in (0, -1, 1 << 63):
        with pytest.raises(InvalidArgument):
            await local.raws.replay([raw_id])
    with pytest.raises(InvalidArgument):
        await local.products.forget_crawl("")


async def test_a_replay_is_counted_also_when_no_process_can_be_woken(local: Stall):
    local.site.sick.add("bad")
    await local.answer(await local.begin("p1"), MINI, "p1", "bad")
    for _ in range(SETTINGS.raw_attempts):
        await local.processor.drain()
        later(local.database)
    rings = list[str]()

    async def ring() -> None:
        rings.append("ring")
        raise ValkeyUnavailable("nobody is there")

    assert await Raws(local.database, ring).replay() == 1
    assert await Raws(local.database, ring).replay() == 0
    assert rings == ["ring"]


@pytest.mark.every_server
@on_sqlite
async def test_old_processed_answers_are_deleted_and_dead_letters_later(stall: Stall):
    await filled(stall, products=1)
    stall.site.sick.add("bad")
    await stall.answer(await stall.begin("p9"), MINI, "p9", "bad")
    for _ in range(SETTINGS.raw_attempts):
        await stall.processor.drain()
        later(stall.database)
    day = timedelta(days=1)
    rules = retention.rules(stall.database, raws=day, dead_letters=3 * day, identity_health=day)
    assert [await rule.prune(500) for rule in rules] == [0, 0, 0]
    later(stall.database, 2 * day)
    assert [await rule.prune(500) for rule in rules] == [5, 0, 0]
    assert await stall.raws.counts() == {RawState.PENDING: 0, RawState.PROCESSED: 0, RawState.FAILED: 1}
    later(stall.database, 2 * day)
    assert [await rule.prune(500) for rule in rules] == [0, 1, 0]


async def test_the_metrics_count_waiting_and_failed_answers(local: Stall):
    run_id = await local.begin("p1")
    await local.answer(run_id, DETAIL, "p1")
    await CrawlGauges(local.database).refresh()
    assert metrics.REGISTRY.get_sample_value("crawl_raws_pending") == 1
    assert metrics.REGISTRY.get_sample_value("crawl_raws_dead") == 0
