"""Products and stored answers, as people ask for them."""

from datetime import timedelta

import pytest

from tests.servers.migrated import on_sqlite
from tests.systems.crawl.core.harness import HOST, SETTINGS, CrawlHarness, later
from tidegate.core.errors import InvalidArgument, NotFound, ValkeyUnavailable
from tidegate.core.telemetry import metrics
from tidegate.systems.crawl import raws
from tidegate.systems.crawl.opening import CrawlGauges
from tidegate.systems.crawl.raws import Raws
from tidegate.systems.crawl.stages import STAGES, RawState

MINI, DETAIL, OPTION = STAGES


async def filled(harness: CrawlHarness, products: int = 5) -> int:
    names = [f"p{n}" for n in range(products)]
    run_id = await harness.begin(*names)
    for name in names:
        await harness.whole(run_id, name)
    await harness.finalize(run_id)
    return run_id


@pytest.mark.every_server
async def test_products_are_paginated(harness: CrawlHarness):
    await filled(harness)
    later(harness.database)
    second = await harness.begin(*(f"p{n}" for n in range(4)), crawl="daily")
    await harness.finalize(second)
    first = await harness.products.page(limit=2)
    assert [product.product_id for product in first.products] == ["p0", "p1"]
    rest = await harness.products.page(limit=100, after=first.next_after)
    assert ([product.product_id for product in rest.products], rest.next_after) == (["p2", "p3", "p4"], None)
    assert [p.product_id for p in (await harness.products.page(is_gone=True)).products] == ["p4"]
    assert (await harness.products.page(host="elsewhere")).products == []
    assert len((await harness.products.page(host=HOST, shop_id="s1", is_gone=False)).products) == 4
    assert [await harness.products.count(is_gone=gone) for gone in (None, True, False)] == [5, 1, 4]
    assert await harness.products.count(host="elsewhere") == 0


@pytest.mark.every_server
async def test_stored_answers_are_paginated(harness: CrawlHarness):
    run_id = await filled(harness)
    first = await harness.raws.page(limit=10)
    rest = await harness.raws.page(limit=10, after=first.next_after)
    assert (len(first.raws), len(rest.raws), rest.next_after) == (10, 5, None)
    assert len((await harness.raws.page(run_id=run_id, host=HOST, product_id="p1", state=RawState.PROCESSED)).raws) == 3
    one = first.raws[0]
    assert await harness.raws.get(one.id) == one
    assert await harness.raws.body(one.id) == b'{"said":"hello"}'


async def test_unknown_resources_are_reported(local: CrawlHarness):
    with pytest.raises(NotFound):
        await local.product("p1")
    with pytest.raises(NotFound):
        await local.raws.get(1)
    with pytest.raises(NotFound):
        await local.raws.body(1)


async def test_invalid_arguments_are_refused(local: CrawlHarness):
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


async def test_a_replay_is_counted_also_when_no_process_can_be_woken(local: CrawlHarness):
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
async def test_old_processed_answers_are_deleted_and_dead_letters_later(harness: CrawlHarness):
    await filled(harness, products=1)
    harness.site.sick.add("bad")
    await harness.answer(await harness.begin("p9"), MINI, "p9", "bad")
    for _ in range(SETTINGS.raw_attempts):
        await harness.processor.drain()
        later(harness.database)
    day = timedelta(days=1)
    rules = raws.rules(harness.database, raws=day, dead_letters=3 * day, identity_health=day)
    assert [await rule.prune(500) for rule in rules] == [0, 0, 0]
    later(harness.database, 2 * day)
    assert [await rule.prune(500) for rule in rules] == [5, 0, 0]
    assert await harness.raws.counts() == {RawState.PENDING: 0, RawState.PROCESSED: 0, RawState.FAILED: 1}
    later(harness.database, 2 * day)
    assert [await rule.prune(500) for rule in rules] == [0, 1, 0]


async def test_the_metrics_count_waiting_and_failed_answers(local: CrawlHarness):
    run_id = await local.begin("p1")
    await local.answer(run_id, DETAIL, "p1")
    await CrawlGauges(local.database).refresh()
    assert metrics.REGISTRY.get_sample_value("crawl_raws_pending") == 1
    assert metrics.REGISTRY.get_sample_value("crawl_raws_dead") == 0
