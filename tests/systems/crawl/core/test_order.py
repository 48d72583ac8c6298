"""Answers become products in the order of their stages, in whatever order they arrive."""

from itertools import permutations

import pytest

from tests.systems.crawl.core.plain import HOST, Stall, answered, content, later
from tidegate.engine import runs
from tidegate.engine.lifecycle import JobState
from tidegate.systems.crawl.stages import STAGES, PageKind, RawState

MINI, DETAIL, OPTION = STAGES


async def applied_order(stall: Stall) -> list[PageKind]:
    """The stages in the order in which they were applied."""
    applied = [raw for raw in await stall.all_raws() if raw.applied_as is not None]
    return [raw.stage for raw in sorted(applied, key=lambda raw: raw.applied_as or 0)]


@pytest.mark.parametrize("drains", [True, False], ids=["one by one", "all at once"])
async def test_every_order_of_arrival_gives_the_same_product(stall: Stall, drains: bool):
    for number, arrivals in enumerate(permutations(STAGES)):
        run_id, product = await stall.begin(f"p{number}", crawl=f"crawl-{number}"), f"p{number}"
        for stage in arrivals:
            await stall.answer(run_id, stage, product, f"{stage} of {product}")
            if drains:
                await stall.processor.drain()
        await stall.processor.drain()

        found = await stall.product(product)
        assert (found.mini_shop, found.detail, found.option) == tuple(
            content(stage, product, f"{stage} of {product}") for stage in STAGES
        )
        assert (found.missing, found.applied) == ({}, 3)
        raws = (await stall.raws.page(run_id=run_id)).raws
        assert [raw.stage for raw in sorted(raws, key=lambda raw: raw.applied_as or 0)] == list(STAGES)
        assert {raw.state for raw in raws} == {RawState.PROCESSED}


async def test_a_detail_that_arrives_before_its_mini_shop_waits_for_it(stall: Stall):
    run_id = await stall.begin("p1", "p2")
    await stall.answer(run_id, DETAIL, "p1")
    await stall.answer(run_id, MINI, "p2")
    await stall.processor.drain()
    (waiting,) = (await stall.raws.page(state=RawState.PENDING)).raws
    assert (waiting.stage, waiting.waits_for, waiting.attempts) == (DETAIL, MINI, 0)
    assert await stall.products.count() == 1, "the other product does not wait"

    await stall.answer(run_id, MINI, "p1")
    await stall.processor.drain()
    assert await stall.raws.counts() == {RawState.PENDING: 0, RawState.PROCESSED: 3, RawState.FAILED: 0}
    assert (await stall.product("p1")).applied == 2


async def test_waiting_answers_continue_when_the_earlier_stage_ends_without_an_answer(stall: Stall):
    run_id = await stall.begin("p1", "p2")
    for product, status in (("p1", 404), ("p2", 400)):
        await stall.answer(run_id, DETAIL, product)
        await stall.processor.drain()
        await stall.lack(run_id, MINI, product, status)
        await stall.processor.drain()
        found = await stall.product(product)
        assert found.mini_shop is None
        assert found.detail == content(DETAIL, product, "hello")
        assert found.missing == {"mini_shop": f"status {status}"}


async def test_waiting_answers_continue_when_the_earlier_stage_has_nothing_new(stall: Stall):
    first = await stall.begin("p1")
    await stall.whole(first, "p1", "old")
    await stall.processor.drain()
    await stall.finalize(first)

    second = await stall.begin("p1")
    await stall.answer(second, DETAIL, "p1", "new")
    await stall.processor.drain()
    assert (await stall.product("p1")).detail == content(DETAIL, "p1", "old")
    await stall.answer(second, MINI, "p1", "old")
    await stall.processor.drain()
    assert (await stall.product("p1")).detail == content(DETAIL, "p1", "new")


@pytest.mark.every_server
async def test_an_unreleased_answer_is_checked_again_automatically(stall: Stall):
    """As when the run was canceled: no round ends its jobs."""
    run_id = await stall.begin("p1")
    await stall.answer(run_id, OPTION, "p1")
    await stall.processor.drain()
    await stall.database.transaction(runs.cancel, run_id)
    assert await stall.processor.drain() is not None
    assert await stall.products.count() == 0
    later(stall.database)
    await stall.processor.drain()
    assert (await stall.product("p1")).missing == dict.fromkeys(("mini_shop", "detail"), JobState.CANCELED)


async def test_a_redirect_is_part_of_its_stage(local: Stall):
    run_id = await local.begin("p1")
    await local.answer(run_id, DETAIL, "p1")
    sent = await local.end(await local.job(run_id, MINI, "p1"), answered(None, 302, Location="/elsewhere"))
    await local.processor.drain()
    assert await local.products.count() == 0, "the mini shop is still on its way"
    (follow_up,) = sent.follow_ups
    await local.end(await local.job(run_id, MINI, "p1", follow_up.page), answered({"said": "found"}))
    await local.processor.drain()
    assert await applied_order(local) == [MINI, DETAIL]


async def test_an_older_answer_never_replaces_a_newer_one(stall: Stall):
    stall.site.sick.add("old")
    first = await stall.begin("p1")
    await stall.answer(first, MINI, "p1", "old")
    await stall.processor.drain()
    second = await stall.begin("p1", crawl="weekly")
    await stall.answer(second, MINI, "p1", "new")
    await stall.processor.drain()
    assert (await stall.product("p1")).mini_shop == content(MINI, "p1", "new")

    stall.site.sick.clear()
    later(stall.database)
    await stall.processor.drain()
    assert (await stall.product("p1")).mini_shop == content(MINI, "p1", "new")
    old = (await stall.raws.page(run_id=first)).raws[0]
    assert (old.state, old.reason, old.applied_as) == (RawState.PROCESSED, "superseded", None)


async def test_a_later_run_waits_for_an_unapplied_earlier_stage(stall: Stall):
    """A DETAIL whose own run found the MINI_SHOP unchanged waits for the MINI_SHOP of the run before."""
    stall.site.sick.add("mini")
    first = await stall.begin("p1")
    await stall.answer(first, MINI, "p1", "mini")
    await stall.processor.drain()
    second = await stall.begin("p1", crawl="weekly")
    await stall.answer(second, MINI, "p1", "mini")  # the same as what is on its way: kept once
    await stall.answer(second, DETAIL, "p1", "detail")
    await stall.processor.drain()
    assert await stall.products.count() == 0

    stall.site.sick.clear()
    later(stall.database)
    await stall.processor.drain()
    assert await applied_order(stall) == [MINI, DETAIL]
    assert (await stall.product("p1")).host == HOST
