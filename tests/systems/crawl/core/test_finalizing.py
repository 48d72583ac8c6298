"""The end of a run: what is gone, what is back, and what could not be got."""

import msgspec
import pytest

from tests.systems.crawl.core.plain import SETTINGS, Stall, answered, content, later
from tidegate.engine import runs
from tidegate.engine.commit_batch import CommitPolicy
from tidegate.systems.crawl import finalizing
from tidegate.systems.crawl.stages import STAGES, RawState

MINI, DETAIL, OPTION = STAGES


async def crawled(stall: Stall, *products: str, crawl: str = "daily", said: str = "hello") -> int:
    """A whole run that gets everything."""
    run_id = await stall.begin(*products, crawl=crawl)
    for product in products:
        await stall.whole(run_id, product, said)
    await stall.finalize(run_id)
    later(stall.database)
    return run_id


async def gone(stall: Stall) -> set[str]:
    return {product.product_id for product in (await stall.products.page(is_gone=True)).products}


async def test_a_product_no_longer_listed_is_gone_and_returns_when_listed_again(stall: Stall):
    await crawled(stall, "p1", "p2")
    assert await gone(stall) == set()
    await crawled(stall, "p2")
    assert await gone(stall) == {"p1"}
    went_at = (await stall.product("p1")).gone_at
    await crawled(stall, "p2")
    assert (await stall.product("p1")).gone_at == went_at, "since when does not move"

    await crawled(stall, "p1", "p2")
    assert await gone(stall) == set()
    assert len(await stall.all_raws()) == 6, "it came back as it was: nothing had to be kept"


async def test_a_product_listed_by_another_crawl_is_not_gone(stall: Stall):
    await crawled(stall, "p1", "p2")
    await crawled(stall, "p2", crawl="weekly")
    await crawled(stall, "p1")
    assert await gone(stall) == set()
    await crawled(stall, "p1", crawl="weekly")
    assert await gone(stall) == {"p2"}


async def test_a_product_listed_only_by_a_deleted_crawl_is_gone_after_the_next_run(local: Stall):
    await crawled(local, "p1", "p2", crawl="weekly")
    await crawled(local, "p1")
    assert await local.products.forget_crawl("weekly") == 2
    await crawled(local, "p1")
    assert await gone(local) == {"p2"}


async def test_a_run_that_reached_its_page_limit_marks_nothing_gone(stall: Stall):
    await crawled(stall, "p1", "p2")
    run_id = await stall.begin("p2", pages=1)
    await stall.whole(run_id, "p2")
    await stall.finalize(run_id)
    assert await gone(stall) == set()


@pytest.mark.every_server
async def test_a_run_with_a_failed_search_marks_nothing_gone(stall: Stall):
    await crawled(stall, "p1", "p2")
    run_id = await stall.begin("p2", keywords=["rope", "net"], others=400)
    await stall.whole(run_id, "p2")
    await stall.finalize(run_id)
    assert await gone(stall) == set()


async def test_a_run_with_an_unreadable_product_marks_nothing_gone(local: Stall):
    await crawled(local, "p1", "p2")
    run_id = await local.begin("p2", "")
    await local.whole(run_id, "p2")
    await local.finalize(run_id)

    assert (await local.run(run_id)).skipped_items == 1
    assert await gone(local) == set()


async def test_a_failed_last_stage_is_recorded_on_the_product_and_cleared_by_the_next_run(stall: Stall):
    run_id = await stall.begin("p1", "p2")
    await stall.answer(run_id, MINI, "p1")
    await stall.answer(run_id, DETAIL, "p1")
    await stall.lack(run_id, OPTION, "p1", 400)
    await stall.whole(run_id, "p2")
    await stall.finalize(run_id)
    assert (await stall.product("p1")).missing == {"option": "status 400"}
    assert (await stall.product("p2")).missing == {}

    await crawled(stall, "p1", "p2")
    assert (await stall.product("p1")).missing == {}


@pytest.mark.every_server
async def test_a_missing_part_is_cleared_although_nothing_else_changed(stall: Stall):
    """MINI_SHOP is known from the first run, fails in the second, and is unchanged in the third."""
    await crawled(stall, "p1")
    second = await stall.begin("p1")
    await stall.lack(second, MINI, "p1")
    await stall.answer(second, DETAIL, "p1")
    await stall.answer(second, OPTION, "p1")
    await stall.finalize(second)
    assert (await stall.product("p1")).missing == {"mini_shop": "status 404"}
    third = await crawled(stall, "p1")
    assert (await stall.raws.page(run_id=third)).raws == []
    assert (await stall.product("p1")).missing == {}


async def test_a_dead_letter_is_a_missing_part_until_it_is_replayed(stall: Stall):
    run_id = await stall.begin("p1")
    stall.site.sick.add("bad")
    await stall.answer(run_id, MINI, "p1")
    await stall.answer(run_id, DETAIL, "p1")
    await stall.answer(run_id, OPTION, "p1", "bad")
    for _ in range(SETTINGS.raw_attempts):
        await stall.processor.drain()
        later(stall.database)
    await stall.finalize(run_id)
    assert (await stall.product("p1")).missing == {"option": "Unreadable: bad is unreadable"}
    stall.site.sick.clear()
    await stall.raws.replay()
    await stall.processor.drain()
    assert (await stall.product("p1")).missing == {}


@pytest.mark.every_server
async def test_a_dead_letter_after_the_end_of_its_run_is_a_missing_part_too_and_stays_one(stall: Stall):
    run_id = await stall.begin("p1")
    await stall.answer(run_id, MINI, "p1")
    await stall.answer(run_id, DETAIL, "p1")
    stall.site.sick.add("bad")
    await stall.answer(run_id, OPTION, "p1", "bad", ETag='"1"')
    await stall.finalize(run_id)
    assert (await stall.product("p1")).missing == {}  # it is tried again
    for _ in range(SETTINGS.raw_attempts):
        later(stall.database)
        await stall.processor.drain()
    lack = {"option": "Unreadable: bad is unreadable"}
    assert (await stall.product("p1")).missing == lack

    again = await stall.begin("p1")
    await stall.answer(again, MINI, "p1")
    await stall.answer(again, DETAIL, "p1")
    await stall.end(await stall.job(again, OPTION, "p1"), answered(None, 304))  # it is what the dead letter says
    await stall.finalize(again)
    assert (await stall.product("p1")).missing == lack

    stall.site.sick.clear()
    await stall.raws.replay()
    await stall.processor.drain()
    product = await stall.product("p1")
    assert (product.missing, product.option) == ({}, content(OPTION, "p1", "bad"))


@pytest.mark.every_server
async def test_the_end_of_a_run_releases_waiting_answers(stall: Stall):
    """As when the end of an earlier stage and the arrival of a later one missed each other."""
    run_id = await stall.begin("p1")
    await stall.answer(run_id, OPTION, "p1")
    await stall.processor.drain()
    stall.policy = CommitPolicy(planning=stall.policy.planning)  # nobody lets go
    await stall.lack(run_id, MINI, "p1")
    await stall.lack(run_id, DETAIL, "p1")
    await stall.processor.drain()
    assert await stall.products.count() == 0
    await stall.finalize(run_id)
    assert await stall.raws.counts([RawState.PENDING]) == {RawState.PENDING: 0}
    assert (await stall.product("p1")).missing == {"mini_shop": "status 404", "detail": "status 404"}


async def test_finalizing_a_run_twice_is_harmless_and_runs_of_other_sources_are_ignored(local: Stall):
    run_id = await crawled(local, "p1")
    run = await local.run(run_id)
    before = await local.product("p1")
    await local.finalizer.finalize(run)
    assert await local.product("p1") == before
    await local.finalizer.finalize(msgspec.structs.replace(run, source="github", id=10**9))
    assert await gone(local) == set()


async def test_more_incomplete_products_than_the_page_size_are_processed(local: Stall, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(finalizing, "_AT_ONCE", 2)
    names = [f"p{n}" for n in range(5)]
    run_id = await local.begin(*names)
    for name in names:
        await local.answer(run_id, MINI, name)
        await local.lack(run_id, DETAIL, name)
        await local.lack(run_id, OPTION, name, 400)
    await local.finalize(run_id)
    found = (await local.products.page()).products
    assert [product.missing for product in found] == [{"detail": "status 404", "option": "status 400"}] * 5
    await crawled(local, *names)
    assert [product.missing for product in (await local.products.page()).products] == [{}] * 5


async def test_a_late_finalization_changes_nothing_that_a_newer_run_found(local: Stall):
    """What has to be done at the end of a run may fail, and be replayed when there is a newer run."""
    first = await local.begin("p1")
    await local.answer(first, MINI, "p1")
    await local.lack(first, DETAIL, "p1")
    await local.answer(first, OPTION, "p1")
    await local.database.transaction(runs.release, first)
    second = await crawled(local, "p1", crawl="daily", said="newer")
    assert (await local.product("p1")).missing == {}

    await local.finalizer.finalize(await local.run(first))
    assert second > first
    assert (await local.product("p1")).missing == {}
