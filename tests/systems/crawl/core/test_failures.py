"""Answers that cannot be applied: tried again by themselves, then dead letters; and nobody else is held up."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.util import await_only

from tests.engine.batches import write_or_find_overtaken
from tests.servers.migrated import on_sqlite
from tests.systems.crawl.core.harness import HOST, SETTINGS, CrawlHarness, answered, content, finish, later
from tests.waiting import look_again, patience, simulated_delay
from tidegate.core.clock import SystemClock
from tidegate.engine.commit_batch import CommitBatch, WriteGroup, write_batch
from tidegate.engine.lifecycle import JobState
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl import applying
from tidegate.systems.crawl.applying import PreparedRaw, RetryPolicy
from tidegate.systems.crawl.processing import RawProcessor
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.site import Sites
from tidegate.systems.crawl.stages import STAGES, RawState

MINI, DETAIL, OPTION = STAGES


async def test_a_failed_answer_is_retried_automatically_with_growing_pauses(local: CrawlHarness):
    run_id = await local.begin("p1")
    await local.answer(run_id, MINI, "p1", "bad")
    local.site.sick.add("bad")
    next_in = await local.processor.drain()
    (raw,) = await local.all_raws()
    assert (raw.state, raw.attempts, raw.reason) == (RawState.PENDING, 1, "Unreadable: bad is unreadable")
    assert next_in is not None
    assert next_in <= SETTINGS.raw_first_pause

    local.site.sick.clear()
    later(local.database)
    assert await local.processor.drain() is None
    assert (await local.product("p1")).mini_shop == content(MINI, "p1", "bad")
    assert [raw.reason for raw in await local.all_raws()] == [None]


async def test_a_failed_answer_is_retried_without_a_wake_up(local: CrawlHarness):
    """The processor itself, by its own timer and a real clock."""
    # Longer than it takes to look twice: else what failed is due again before the timer is needed.
    settings = CrawlSettings(raw_first_pause=timedelta(milliseconds=300), raw_longest_pause=timedelta(milliseconds=300))
    async with await Database.open(f"sqlite://{_file(local)}", clock=SystemClock()) as database:
        processor = RawProcessor(database, Sites([local.site]), settings)
        local.site.sick.add("bad")
        await local.answer(await local.begin("p1"), MINI, "p1", "bad")
        stopping = asyncio.Event()
        running = asyncio.create_task(processor.run(stopping))
        try:
            async with patience():
                while not (found := await local.all_raws()) or found[0].attempts == 0:
                    await look_again()
                local.site.sick.clear()
                while await local.products.count() == 0:
                    await look_again()
        finally:
            stopping.set()
            await running


def _file(local: CrawlHarness) -> str:
    return "/" + local.database.name.partition("///")[2]


@pytest.mark.every_server
async def test_an_answer_that_fails_too_often_is_a_dead_letter_with_its_reason_until_it_is_replayed(
    harness: CrawlHarness,
):
    run_id = await harness.begin("p1", "p2")
    harness.site.sick.update(("bad", "worse"))
    await harness.answer(run_id, MINI, "p1", "bad")
    await harness.answer(run_id, MINI, "p2", "worse")
    for _ in range(SETTINGS.raw_attempts):
        await harness.processor.drain()
        later(harness.database)
    dead = (await harness.raws.dead()).raws
    assert [(raw.product_id, raw.attempts, raw.reason) for raw in dead] == [
        ("p1", 3, "Unreadable: bad is unreadable"),
        ("p2", 3, "Unreadable: worse is unreadable"),
    ]
    assert await harness.processor.drain() is None, "nobody tries them any more"

    harness.site.sick.discard("bad")
    assert await harness.raws.replay([dead[0].id]) == 1
    assert await harness.raws.replay([dead[0].id]) == 0, "it is no dead letter any more"
    await harness.processor.drain()
    assert (await harness.product("p1")).mini_shop == content(MINI, "p1", "bad")

    assert await harness.raws.replay() == 1
    await harness.processor.drain()
    (again,) = (await harness.raws.page(state=RawState.PENDING)).raws
    assert (again.product_id, again.attempts) == ("p2", 1), "it begins anew"


async def test_later_stages_skip_a_dead_letter_and_record_it_until_it_is_replayed(harness: CrawlHarness):
    run_id = await harness.begin("p1")
    harness.site.sick.add("bad")
    await harness.answer(run_id, MINI, "p1", "bad")
    await harness.answer(run_id, DETAIL, "p1", "good")
    for _ in range(SETTINGS.raw_attempts - 1):
        await harness.processor.drain()
        assert await harness.products.count() == 0
        later(harness.database)
    await harness.processor.drain()
    await harness.processor.drain()
    found = await harness.product("p1")
    assert (found.mini_shop, found.detail) == (None, content(DETAIL, "p1", "good"))
    assert found.missing == {"mini_shop": "Unreadable: bad is unreadable"}

    harness.site.sick.clear()
    await harness.raws.replay()
    await harness.processor.drain()
    found = await harness.product("p1")
    assert (found.mini_shop, found.missing, found.applied) == (content(MINI, "p1", "bad"), {}, 2)


@pytest.mark.every_server
async def test_answers_waiting_for_a_failed_one_continue_when_it_is_applied(harness: CrawlHarness):
    run_id = await harness.begin("p1")
    harness.site.sick.add("bad")
    await harness.answer(run_id, MINI, "p1", "bad")
    await harness.answer(run_id, DETAIL, "p1", "good")
    await harness.processor.drain()
    harness.site.sick.clear()
    later(harness.database, SETTINGS.raw_first_pause)
    await harness.processor.drain()
    assert (await harness.product("p1")).applied == 2, "and not half a minute later"


async def test_one_bad_answer_delays_no_other(harness: CrawlHarness):
    run_id = await harness.begin(*(f"p{n}" for n in range(6)))
    harness.site.sick.add("bad")
    for n in range(6):
        await harness.answer(run_id, MINI, f"p{n}", "bad" if n == 2 else "good")
    await harness.processor.drain()
    assert await harness.products.count() == 5


async def test_an_answer_refused_by_the_database_delays_no_other(
    harness: CrawlHarness, monkeypatch: pytest.MonkeyPatch
):
    """A batch that cannot be written is written one by one, and the bad one is tried again like any other."""
    real = applying.write_products

    def picky(tx: Transaction, rows: Any) -> None:
        if any("bad" in text for row in rows for text in row.contents.values()):
            raise RuntimeError("no room for it")
        real(tx, rows)

    monkeypatch.setattr(applying, "write_products", picky)
    run_id = await harness.begin("p0", "p1", "p2")
    for n, said in enumerate(("good", "bad", "good")):
        await harness.answer(run_id, MINI, f"p{n}", said)
    await harness.processor.drain()
    assert await harness.products.count() == 2
    (raw,) = (await harness.raws.page(state=RawState.PENDING)).raws
    assert (raw.product_id, raw.attempts, raw.reason) == ("p1", 1, "RuntimeError: no room for it")


async def test_a_failed_transaction_applies_nothing_and_the_next_applies_it_once(
    harness: CrawlHarness, monkeypatch: pytest.MonkeyPatch
):
    run_id = await harness.begin("p1")
    await harness.whole(run_id, "p1")
    real, failures = applying.write_outcomes, [ConnectionResetError("cut off")]

    def cut_off(tx: Transaction, outcomes: Any) -> None:
        real(tx, outcomes)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(applying, "write_outcomes", cut_off)
    await harness.processor.drain()
    assert not failures
    assert (await harness.product("p1")).applied == 3
    assert sorted(raw.applied_as or 0 for raw in await harness.all_raws()) == [1, 2, 3]


@pytest.mark.every_server
async def test_two_assumed_leaders_apply_each_answer_once(harness: CrawlHarness):
    """A leader that was frozen wakes up while its successor works."""
    other = RawProcessor(harness.database, Sites([harness.site]), SETTINGS)
    run_id = await harness.begin(*(f"p{n}" for n in range(8)))
    for n in range(8):
        await harness.whole(run_id, f"p{n}")
    await asyncio.gather(harness.processor.drain(), other.drain())
    products = (await harness.products.page()).products
    assert [(product.applied, product.missing) for product in products] == [(3, {})] * 8
    assert sorted(raw.applied_as or 0 for raw in await harness.all_raws()) == [1] * 8 + [2] * 8 + [3] * 8


@pytest.mark.every_server
@pytest.mark.parametrize("migrated_url", ["mariadb", "postgres"], indirect=True)
async def test_applying_an_answer_sees_earlier_answers_of_the_same_product(
    harness: CrawlHarness, monkeypatch: pytest.MonkeyPatch
):
    """Both would find no product, and each make it anew, did they not take turns."""
    looking = applying.known_parts

    def look_for_long(tx: Transaction, keys: Any) -> Any:
        found = looking(tx, keys)
        await_only(simulated_delay(0.2))
        return found

    monkeypatch.setattr(applying, "known_parts", look_for_long)
    for crawl in ("daily", "weekly"):
        await harness.answer(await harness.begin("p1", crawl=crawl), MINI, "p1", crawl)
    patience, about = RetryPolicy(SETTINGS.raw_attempts, SETTINGS.raw_pauses), {"site": "plain", "shop_id": "s1"}
    read = [
        PreparedRaw(id=raw.id, run_id=raw.run_id, key=(HOST, "p1"), stage=MINI, hash=raw.hash, content="{}", **about)
        for raw in await harness.all_raws()
    ]
    await asyncio.gather(*(harness.database.transaction(applying.apply, [one], patience) for one in read))
    raws = await harness.all_raws()
    assert (await harness.product("p1")).applied == len([raw for raw in raws if raw.applied_as is not None])
    assert len({raw.applied_as for raw in raws}) == 2


async def test_an_unreadable_page_is_requested_again_and_then_stored_as_it_is(local: CrawlHarness):
    run_id = await local.begin("p1")
    job_id = await local.job(run_id, MINI, "p1")
    states = [(await local.end(job_id, answered({"said": "nonsense"}))).state for _ in range(5)]
    assert states == [JobState.READY] * 4 + [JobState.SUCCEEDED]
    (raw,) = await local.all_raws()
    assert await local.raws.body(raw.id) == b'{"said":"nonsense"}'


@on_sqlite
async def test_a_rolled_back_batch_stores_no_answer(harness: CrawlHarness):
    run_id = await harness.begin("p1")
    job_id = await harness.job(run_id, MINI, "p1")
    written = await harness.database.transaction(write_batch, CommitBatch(wanted=[job_id]), harness.policy)
    claim = written.claimed[job_id]
    finished = finish(harness.source, claim, answered({"said": "hello"}), harness.database.clock.now())

    def fail(tx: Transaction) -> None:
        write_batch(tx, CommitBatch(groups=[WriteGroup([finished])]), harness.policy)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await harness.database.transaction(fail)
    assert await harness.all_raws() == []
    await harness.database.transaction(write_batch, CommitBatch(groups=[WriteGroup([finished])]), harness.policy)
    late = await write_or_find_overtaken(harness.database, CommitBatch(groups=[WriteGroup([finished])]), harness.policy)
    assert len(late.overtaken) == 1
    assert len(await harness.all_raws()) == 1
