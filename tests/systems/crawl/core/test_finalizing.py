"""The end of a run: what is gone, what is back, and what could not be got."""

import msgspec
import pytest

from tests.systems.crawl.core.harness import SETTINGS, CrawlHarness, answered, content, later
from tidegate.engine import runs
from tidegate.engine.commit_batch import CommitPolicy
from tidegate.systems.crawl import finalizing
from tidegate.systems.crawl.stages import STAGES, RawState

MINI, DETAIL, OPTION = STAGES


async def crawled(harness: CrawlHarness, *products: str, crawl: str = "daily", said: str = "hello") -> int:
    """A whole run that gets everything."""
    run_id = await harness.begin(*products, crawl=crawl)
    for product in products:
        await harness.whole(run_id, product, said)
    await harness.finalize(run_id)
    later(harness.database)
    return run_id


async def gone(harness: CrawlHarness) -> set[str]:
    return {product.product_id for product in (await harness.products.page(is_gone=True)).products}


async def test_a_product_no_longer_listed_is_gone_and_returns_when_listed_again(harness: CrawlHarness):
    await crawled(harness, "p1", "p2")
    assert await gone(harness) == set()
    await crawled(harness, "p2")
    assert await gone(harness) == {"p1"}
    went_at = (await harness.product("p1")).gone_at
    await crawled(harness, "p2")
    assert (await harness.product("p1")).gone_at == went_at, "since when does not move"

    await crawled(harness, "p1", "p2")
    assert await gone(harness) == set()
    assert len(await harness.all_raws()) == 6, "it came back as it was: nothing had to be kept"


async def test_a_product_listed_by_another_crawl_is_not_gone(harness: CrawlHarness):
    await crawled(harness, "p1", "p2")
    await crawled(harness, "p2", crawl="weekly")
    await crawled(harness, "p1")
    assert await gone(harness) == set()
    await crawled(harness, "p1", crawl="weekly")
    assert await gone(harness) == {"p2"}


async def test_a_product_listed_only_by_a_deleted_crawl_is_gone_after_the_next_run(local: CrawlHarness):
    await crawled(local, "p1", "p2", crawl="weekly")
    await crawled(local, "p1")
    assert await local.products.forget_crawl("weekly") == 2
    await crawled(local, "p1")
    assert await gone(local) == {"p2"}


async def test_a_run_that_reached_its_page_limit_marks_nothing_gone(harness: CrawlHarness):
    await crawled(harness, "p1", "p2")
    run_id = await harness.begin("p2", pages=1)
    await harness.whole(run_id, "p2")
    await harness.finalize(run_id)
    assert await gone(harness) == set()


@pytest.mark.every_server
async def test_a_run_with_a_failed_search_marks_nothing_gone(harness: CrawlHarness):
    await crawled(harness, "p1", "p2")
    run_id = await harness.begin("p2", keywords=["rope", "net"], others=400)
    await harness.whole(run_id, "p2")
    await harness.finalize(run_id)
    assert await gone(harness) == set()


async def test_a_run_with_an_unreadable_product_marks_nothing_gone(local: CrawlHarness):
    await crawled(local, "p1", "p2")
    run_id = await local.begin("p2", "")
    await local.whole(run_id, "p2")
    await local.finalize(run_id)

    assert (await local.run(run_id)).skipped_items == 1
    assert await gone(local) == set()


async def test_a_failed_last_stage_is_recorded_on_the_product_and_cleared_by_the_next_run(harness: CrawlHarness):
    run_id = await harness.begin("p1", "p2")
    await harness.answer(run_id, MINI, "p1")
    await harness.answer(run_id, DETAIL, "p1")
    await harness.lack(run_id, OPTION, "p1", 400)
    await harness.whole(run_id, "p2")
    await harness.finalize(run_id)
    assert (await harness.product("p1")).missing == {"option": "status 400"}
    assert (await harness.product("p2")).missing == {}

    await crawled(harness, "p1", "p2")
    assert (await harness.product("p1")).missing == {}


@pytest.mark.every_server
async def test_a_missing_part_is_cleared_although_nothing_else_changed(harness: CrawlHarness):
    """MINI_SHOP is known from the first run, fails in the second, and is unchanged in the third."""
    await crawled(harness, "p1")
    second = await harness.begin("p1")
    await harness.lack(second, MINI, "p1")
    await harness.answer(second, DETAIL, "p1")
    await harness.answer(second, OPTION, "p1")
    await harness.finalize(second)
    assert (await harness.product("p1")).missing == {"mini_shop": "status 404"}
    third = await crawled(harness, "p1")
    assert (await harness.raws.page(run_id=third)).raws == []
    assert (await harness.product("p1")).missing == {}


async def test_a_dead_letter_is_a_missing_part_until_it_is_replayed(harness: CrawlHarness):
    run_id = await harness.begin("p1")
    harness.site.sick.add("bad")
    await harness.answer(run_id, MINI, "p1")
    await harness.answer(run_id, DETAIL, "p1")
    await harness.answer(run_id, OPTION, "p1", "bad")
    for _ in range(SETTINGS.raw_attempts):
        await harness.processor.drain()
        later(harness.database)
    await harness.finalize(run_id)
    assert (await harness.product("p1")).missing == {"option": "Unreadable: bad is unreadable"}
    harness.site.sick.clear()
    await harness.raws.replay()
    await harness.processor.drain()
    assert (await harness.product("p1")).missing == {}


@pytest.mark.every_server
async def test_a_dead_letter_after_the_end_of_its_run_is_a_missing_part_too_and_stays_one(harness: CrawlHarness):
    run_id = await harness.begin("p1")
    await harness.answer(run_id, MINI, "p1")
    await harness.answer(run_id, DETAIL, "p1")
    harness.site.sick.add("bad")
    await harness.answer(run_id, OPTION, "p1", "bad", ETag='"1"')
    await harness.finalize(run_id)
    assert (await harness.product("p1")).missing == {}  # it is tried again
    for _ in range(SETTINGS.raw_attempts):
        later(harness.database)
        await harness.processor.drain()
    lack = {"option": "Unreadable: bad is unreadable"}
    assert (await harness.product("p1")).missing == lack

    again = await harness.begin("p1")
    await harness.answer(again, MINI, "p1")
    await harness.answer(again, DETAIL, "p1")
    await harness.end(await harness.job(again, OPTION, "p1"), answered(None, 304))  # it is what the dead letter says
    await harness.finalize(again)
    assert (await harness.product("p1")).missing == lack

    harness.site.sick.clear()
    await harness.raws.replay()
    await harness.processor.drain()
    product = await harness.product("p1")
    assert (product.missing, product.option) == ({}, content(OPTION, "p1", "bad"))


@pytest.mark.every_server
async def test_the_end_of_a_run_releases_waiting_answers(harness: CrawlHarness):
    """As when the end of an earlier stage and the arrival of a later one missed each other."""
    run_id = await harness.begin("p1")
    await harness.answer(run_id, OPTION, "p1")
    await harness.processor.drain()
    harness.policy = CommitPolicy(planning=harness.policy.planning)  # nobody lets go
    await harness.lack(run_id, MINI, "p1")
    await harness.lack(run_id, DETAIL, "p1")
    await harness.processor.drain()
    assert await harness.products.count() == 0
    await harness.finalize(run_id)
    assert await harness.raws.counts([RawState.PENDING]) == {RawState.PENDING: 0}
    assert (await harness.product("p1")).missing == {"mini_shop": "status 404", "detail": "status 404"}


async def test_finalizing_a_run_twice_is_harmless_and_runs_of_other_sources_are_ignored(local: CrawlHarness):
    run_id = await crawled(local, "p1")
    run = await local.run(run_id)
    before = await local.product("p1")
    await local.finalizer.finalize(run)
    assert await local.product("p1") == before
    await local.finalizer.finalize(msgspec.structs.replace(run, source="github", id=10**9))
    assert await gone(local) == set()


async def test_more_incomplete_products_than_the_page_size_are_processed(
    local: CrawlHarness, monkeypatch: pytest.MonkeyPatch
):
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


async def test_a_late_finalization_changes_nothing_that_a_newer_run_found(local: CrawlHarness):
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
