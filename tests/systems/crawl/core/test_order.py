"""Answers become products in the order of their stages, in whatever order they arrive."""

from itertools import permutations

import pytest

from tests.systems.crawl.core.harness import HOST, CrawlHarness, answered, content, later
from tidegate.engine import runs
from tidegate.engine.lifecycle import JobState
from tidegate.systems.crawl.stages import STAGES, PageKind, RawState

MINI, DETAIL, OPTION = STAGES


async def applied_order(harness: CrawlHarness) -> list[PageKind]:
    """The stages in the order in which they were applied."""
    applied = [raw for raw in await harness.all_raws() if raw.applied_as is not None]
    return [raw.stage for raw in sorted(applied, key=lambda raw: raw.applied_as or 0)]


@pytest.mark.parametrize("drains", [True, False], ids=["one by one", "all at once"])
async def test_every_order_of_arrival_gives_the_same_product(harness: CrawlHarness, drains: bool):
    for number, arrivals in enumerate(permutations(STAGES)):
        run_id, product = await harness.begin(f"p{number}", crawl=f"crawl-{number}"), f"p{number}"
        for stage in arrivals:
            await harness.answer(run_id, stage, product, f"{stage} of {product}")
            if drains:
                await harness.processor.drain()
        await harness.processor.drain()

        found = await harness.product(product)
        assert (found.mini_shop, found.detail, found.option) == tuple(
            content(stage, product, f"{stage} of {product}") for stage in STAGES
        )
        assert (found.missing, found.applied) == ({}, 3)
        raws = (await harness.raws.page(run_id=run_id)).raws
        assert [raw.stage for raw in sorted(raws, key=lambda raw: raw.applied_as or 0)] == list(STAGES)
        assert {raw.state for raw in raws} == {RawState.PROCESSED}


async def test_a_detail_that_arrives_before_its_mini_shop_waits_for_it(harness: CrawlHarness):
    run_id = await harness.begin("p1", "p2")
    await harness.answer(run_id, DETAIL, "p1")
    await harness.answer(run_id, MINI, "p2")
    await harness.processor.drain()
    (waiting,) = (await harness.raws.page(state=RawState.PENDING)).raws
    assert (waiting.stage, waiting.waits_for, waiting.attempts) == (DETAIL, MINI, 0)
    assert await harness.products.count() == 1, "the other product does not wait"

    await harness.answer(run_id, MINI, "p1")
    await harness.processor.drain()
    assert await harness.raws.counts() == {RawState.PENDING: 0, RawState.PROCESSED: 3, RawState.FAILED: 0}
    assert (await harness.product("p1")).applied == 2


async def test_waiting_answers_continue_when_the_earlier_stage_ends_without_an_answer(harness: CrawlHarness):
    run_id = await harness.begin("p1", "p2")
    for product, status in (("p1", 404), ("p2", 400)):
        await harness.answer(run_id, DETAIL, product)
        await harness.processor.drain()
        await harness.lack(run_id, MINI, product, status)
        await harness.processor.drain()
        found = await harness.product(product)
        assert found.mini_shop is None
        assert found.detail == content(DETAIL, product, "hello")
        assert found.missing == {"mini_shop": f"status {status}"}


async def test_waiting_answers_continue_when_the_earlier_stage_has_nothing_new(harness: CrawlHarness):
    first = await harness.begin("p1")
    await harness.whole(first, "p1", "old")
    await harness.processor.drain()
    await harness.finalize(first)

    second = await harness.begin("p1")
    await harness.answer(second, DETAIL, "p1", "new")
    await harness.processor.drain()
    assert (await harness.product("p1")).detail == content(DETAIL, "p1", "old")
    await harness.answer(second, MINI, "p1", "old")
    await harness.processor.drain()
    assert (await harness.product("p1")).detail == content(DETAIL, "p1", "new")


@pytest.mark.every_server
async def test_an_unreleased_answer_is_checked_again_automatically(harness: CrawlHarness):
    """As when the run was canceled: no round ends its jobs."""
    run_id = await harness.begin("p1")
    await harness.answer(run_id, OPTION, "p1")
    await harness.processor.drain()
    await harness.database.transaction(runs.cancel, run_id)
    assert await harness.processor.drain() is not None
    assert await harness.products.count() == 0
    later(harness.database)
    await harness.processor.drain()
    assert (await harness.product("p1")).missing == dict.fromkeys(("mini_shop", "detail"), JobState.CANCELED)


async def test_a_redirect_is_part_of_its_stage(local: CrawlHarness):
    run_id = await local.begin("p1")
    await local.answer(run_id, DETAIL, "p1")
    sent = await local.end(await local.job(run_id, MINI, "p1"), answered(None, 302, Location="/elsewhere"))
    await local.processor.drain()
    assert await local.products.count() == 0, "the mini shop is still on its way"
    (follow_up,) = sent.follow_ups
    await local.end(await local.job(run_id, MINI, "p1", follow_up.page), answered({"said": "found"}))
    await local.processor.drain()
    assert await applied_order(local) == [MINI, DETAIL]


async def test_an_older_answer_never_replaces_a_newer_one(harness: CrawlHarness):
    harness.site.sick.add("old")
    first = await harness.begin("p1")
    await harness.answer(first, MINI, "p1", "old")
    await harness.processor.drain()
    second = await harness.begin("p1", crawl="weekly")
    await harness.answer(second, MINI, "p1", "new")
    await harness.processor.drain()
    assert (await harness.product("p1")).mini_shop == content(MINI, "p1", "new")

    harness.site.sick.clear()
    later(harness.database)
    await harness.processor.drain()
    assert (await harness.product("p1")).mini_shop == content(MINI, "p1", "new")
    old = (await harness.raws.page(run_id=first)).raws[0]
    assert (old.state, old.reason, old.applied_as) == (RawState.PROCESSED, "superseded", None)


async def test_a_later_run_waits_for_an_unapplied_earlier_stage(harness: CrawlHarness):
    """A DETAIL whose own run found the MINI_SHOP unchanged waits for the MINI_SHOP of the run before."""
    harness.site.sick.add("mini")
    first = await harness.begin("p1")
    await harness.answer(first, MINI, "p1", "mini")
    await harness.processor.drain()
    second = await harness.begin("p1", crawl="weekly")
    await harness.answer(second, MINI, "p1", "mini")  # the same as what is on its way: kept once
    await harness.answer(second, DETAIL, "p1", "detail")
    await harness.processor.drain()
    assert await harness.products.count() == 0

    harness.site.sick.clear()
    later(harness.database)
    await harness.processor.drain()
    assert await applied_order(harness) == [MINI, DETAIL]
    assert (await harness.product("p1")).host == HOST
