"""What a round of a crawl leaves: answers with something new in them, and nothing for what is known."""

from typing import Any

import pytest
from sqlalchemy import select

from tests.systems.crawl.core.harness import HOST, SETTINGS, CrawlHarness, answered, content, later
from tidegate.engine.lifecycle import JobState
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.source import UnchangedContent
from tidegate.systems.crawl.stages import STAGES, RawState
from tidegate.systems.crawl.tables import crawl_products, crawl_raws, crawl_sightings

MINI, DETAIL, OPTION = STAGES


def rows_of_products(tx: Transaction) -> list[Any]:
    return list(tx.execute(select(crawl_products).order_by(crawl_products.c.product_id)))


def sightings(tx: Transaction) -> list[tuple[str, str, int]]:
    seen = crawl_sightings.c
    rows = tx.execute(select(seen.product_id, seen.crawl, seen.last_run_id).order_by(seen.product_id, seen.crawl))
    return [tuple(row) for row in rows]


@pytest.mark.every_server
async def test_a_run_without_changes_writes_no_product(harness: CrawlHarness):
    first = await harness.begin("p1", "p2")
    for product in ("p1", "p2"):
        await harness.whole(first, product)
    await harness.processor.drain()
    await harness.finalize(first)
    before = await harness.database.read(rows_of_products)

    later(harness.database)
    second = await harness.begin("p1", "p2")
    for product in ("p1", "p2"):
        await harness.whole(second, product)
    assert (await harness.raws.page(run_id=second)).raws == [], "no answer is kept that says what is known"
    await harness.finalize(second)
    assert await harness.database.read(rows_of_products) == before


async def test_only_changes_are_written(harness: CrawlHarness):
    first = await harness.begin("p1")
    await harness.whole(first, "p1", "old")
    await harness.finalize(first)
    later(harness.database)
    second = await harness.begin("p1")
    for stage in STAGES:
        await harness.answer(second, stage, "p1", "new" if stage is DETAIL else "old")
    assert [raw.stage for raw in (await harness.raws.page(run_id=second)).raws] == [DETAIL]
    await harness.finalize(second)
    found = await harness.product("p1")
    assert (found.mini_shop, found.detail) == (content(MINI, "p1", "old"), content(DETAIL, "p1", "new"))
    assert (found.applied, found.changed_at > found.first_seen_at) == (4, True)


async def test_stored_validators_are_not_used_while_another_answer_is_pending(harness: CrawlHarness):
    """A, then B that cannot be applied yet, then A again: the product must end as A."""
    await harness.answer(await harness.begin("p1", crawl="1"), MINI, "p1", "A")
    await harness.processor.drain()
    harness.site.sick.add("B")
    await harness.answer(await harness.begin("p1", crawl="2"), MINI, "p1", "B")
    await harness.processor.drain()
    await harness.answer(await harness.begin("p1", crawl="3"), MINI, "p1", "A")
    await harness.processor.drain()
    harness.site.sick.clear()
    later(harness.database)
    await harness.processor.drain()
    assert (await harness.product("p1")).mini_shop == content(MINI, "p1", "A")
    assert [raw.reason for raw in await harness.all_raws()] == [None, "superseded", "unchanged"]


async def test_a_late_replay_of_a_dead_letter_does_not_restore_replaced_data(local: CrawlHarness):
    await local.answer(await local.begin("p1", crawl="1"), MINI, "p1", "A")
    await local.processor.drain()
    local.site.sick.add("B")
    await local.answer(await local.begin("p1", crawl="2"), MINI, "p1", "B")
    for _ in range(SETTINGS.raw_attempts):
        await local.processor.drain()
        later(local.database)
    await local.answer(await local.begin("p1", crawl="3"), MINI, "p1", "A")
    await local.processor.drain()
    local.site.sick.clear()
    assert await local.raws.replay() == 1
    await local.processor.drain()
    assert (await local.product("p1")).mini_shop == content(MINI, "p1", "A")


async def test_a_304_is_accepted_while_its_content_is_stored(harness: CrawlHarness):
    first = await harness.begin("p1")
    await harness.answer(first, MINI, "p1", "A", ETag='"a"')
    await harness.processor.drain()
    await harness.lack(first, DETAIL, "p1")
    await harness.lack(first, OPTION, "p1")
    await harness.finalize(first)

    for _ in range(2):
        run_id = await harness.begin("p1")
        ended = await harness.end(await harness.job(run_id, MINI, "p1"), answered(None, 304))
        assert [type(effect) for effect in ended.effects] == [UnchangedContent]
        assert ended.unchanged_calls == 1
        await harness.lack(run_id, DETAIL, "p1")
        await harness.lack(run_id, OPTION, "p1")
        await harness.finalize(run_id)
    assert len(await harness.all_raws()) == 1


async def test_a_304_for_content_that_another_crawl_replaced_is_dropped(harness: CrawlHarness):
    """A crawl's validator stands for A; another crawl has read B since. The next run has to read it whole."""
    run_id = await harness.begin("p1")
    await harness.answer(run_id, MINI, "p1", "A", ETag='"a"')
    await harness.lack(run_id, DETAIL, "p1")
    await harness.lack(run_id, OPTION, "p1")
    await harness.finalize(run_id)
    await harness.answer(await harness.begin("p1", crawl="weekly"), MINI, "p1", "B")
    await harness.processor.drain()

    second = await harness.begin("p1")
    ended = await harness.end(await harness.job(second, MINI, "p1"), answered(None, 304))
    assert ended.claim.cursor is not None
    await harness.lack(second, DETAIL, "p1")
    await harness.lack(second, OPTION, "p1")
    await harness.finalize(second)
    third = await harness.begin("p1")
    ended = await harness.end(await harness.job(third, MINI, "p1"), answered({"said": "A"}))
    assert ended.claim.cursor is None, "an empty cursor is none: the page is asked for without a validator"
    await harness.processor.drain()
    assert (await harness.product("p1")).mini_shop == content(MINI, "p1", "A")


@pytest.mark.every_server
async def test_sightings_record_which_crawl_lists_a_product(harness: CrawlHarness):
    daily = await harness.begin("p1", "p2")
    weekly = await harness.begin("p2", "p3", crawl="weekly")
    assert await harness.database.read(sightings) == [
        ("p1", "daily", daily),
        ("p2", "daily", daily),
        ("p2", "weekly", weekly),
        ("p3", "weekly", weekly),
    ]


async def test_a_product_found_by_two_searches_is_fetched_once(local: CrawlHarness):
    run_id = await local.begin("p1", "p1", keywords=["rope", "net"])
    assert (await local.run(run_id)).total_jobs == 2 + 3


@pytest.mark.every_server
async def test_every_answer_is_stored_unchanged(harness: CrawlHarness):
    run_id = await harness.begin("p1", "p2")
    long = "x" * 5_000 + "海\x00"
    await harness.answer(run_id, MINI, "p1", long)
    await harness.end(await harness.job(run_id, MINI, "p2"), answered(b'{"said":"' + b"\xc3\xa4" * 10 + b'"}'))
    bodies = [await harness.raws.body(raw.id) for raw in await harness.all_raws()]
    assert bodies[1] == b'{"said":"' + b"\xc3\xa4" * 10 + b'"}'
    await harness.processor.drain()
    assert (await harness.product("p1")).mini_shop == content(MINI, "p1", long)

    def size(tx: Transaction) -> int:
        return len(tx.execute(select(crawl_raws.c.body).order_by(crawl_raws.c.id).limit(1)).scalar_one())

    assert await harness.database.read(size) < 200, "what is long is compressed"


@pytest.mark.parametrize("status", [500, 429])
async def test_a_retried_job_stores_no_answer(local: CrawlHarness, status: int):
    run_id = await local.begin("p1")
    await local.answer(run_id, DETAIL, "p1")
    ended = await local.end(await local.job(run_id, MINI, "p1"), answered(None, status))
    assert ended.state is JobState.READY
    await local.processor.drain()
    assert [(raw.stage, raw.state) for raw in await local.all_raws()] == [(DETAIL, RawState.PENDING)]
    assert (await local.products.page(host=HOST)).products == []
