"""What goes wrong: nothing is dropped in silence, nothing stays pending for ever, and nobody suffers for another."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import Picky, WorkerHarness, worker_harness_at
from tests.waiting import PATIENCE_S, look_again, observe_absence, until
from tidegate.core.backoff import Backoff
from tidegate.core.errors import DatabaseUnavailable
from tidegate.runtime import outage
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import decider, scripts, worker
from tidegate.systems.campaigns.model import Campaign, CampaignChange, CampaignEntry, EntryOutcome, EntryVerdict
from tidegate.systems.campaigns.settings import CampaignSettings


async def test_an_unreadable_message_is_a_dead_letter_immediately(workers: WorkerHarness):
    await workers.open()
    stream = workers.keys()["stream"]
    for fields in (["other", "x"], ["payload", "{no json"], ["payload", '{"user": 7}'], ["payload", b"\xff"]):
        await workers.valkey.execute("XADD", stream, "*", *fields)
    await workers.enter("ann")
    await workers.instance()

    await workers.until_decided(1)

    letters = (await workers.campaigns.dead(CAMPAIGN)).letters
    assert [letter.deliveries for letter in letters] == [1] * 4
    assert letters[0].reason == "the message has no payload"
    assert all(letter.reason.startswith("the payload does not parse") for letter in letters[1:])


async def test_a_failing_entry_is_isolated_retried_and_set_aside_while_the_others_pass(workers: WorkerHarness):
    await workers.open(total=100, kind="PICKY", stock=100)
    await workers.enter("ann", "poison", "bob", "poison-2", *(f"user-{n}" for n in range(30)))
    await workers.instance()

    await workers.until_decided(32)
    await workers.until(lambda: _has_letters(workers, 2))

    letters = (await workers.campaigns.dead(CAMPAIGN)).letters
    assert {letter.entry.user for letter in letters if letter.entry} == {"poison", "poison-2"}
    assert {letter.deliveries for letter in letters} == {5}
    assert all(letter.reason.startswith("ZeroDivisionError: poison") for letter in letters)
    assert (CAMPAIGN, "poison") in workers.told
    assert (await workers.campaigns.result(CAMPAIGN, "poison")).state == "failed"
    assert workers.picky.asked["poison"] >= 5, "once alone for each delivery"
    await workers.until_gone()

    workers.picky.asked.clear()
    assert await workers.campaigns.replay(CAMPAIGN, [letters[0].id]) == 1
    await workers.until(lambda: _has_letters(workers, 2))
    assert workers.picky.asked[letters[0].entry.user if letters[0].entry else ""] >= 5, "from the first delivery again"


@pytest.mark.parametrize("others", [["ann", "bob"], []], ids=["with others", "alone"])
async def test_an_entry_that_alone_meets_outages_is_set_aside_while_the_others_pass(
    workers: WorkerHarness, monkeypatch: pytest.MonkeyPatch, others: list[str]
):
    """The database serves everything else, so the failure is about the entry; it does not hold up its campaign."""
    monkeypatch.setattr(decider, "_AWAY_S", 0.05)
    monkeypatch.setattr(
        outage, "OUTAGE_PAUSES", Backoff(first=timedelta(milliseconds=1), most=timedelta(milliseconds=20))
    )

    def apply(tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> Sequence[EntryOutcome]:
        if any(entry.user == "bad" for entry in entries):
            raise DatabaseUnavailable("the connection broke")
        return [EntryOutcome(verdict=EntryVerdict.ISSUED) for _ in entries]

    monkeypatch.setattr(workers.picky, "apply", apply)
    await workers.open(kind="PICKY", stock=10)
    await workers.enter("bad", *others)
    await workers.instance()
    await workers.until(lambda: _has_letters(workers, 1))
    await workers.until_decided(len(others))

    (letter,) = (await workers.campaigns.dead(CAMPAIGN)).letters
    assert letter.entry is not None
    assert (letter.entry.user, letter.deliveries) == ("bad", 5)
    assert letter.reason == "StepKeepsFailing: DatabaseUnavailable: the connection broke, while others were served"
    assert set(await workers.rows()) == set(others)


async def test_failed_entries_wait_for_minutes_and_delay_no_other(tmp_path: Path, embedded: Valkey):
    """More of them than a process works on at a time."""
    pauses = CampaignSettings().retry_pauses
    assert [pauses.ceiling(tries).total_seconds() for tries in range(1, 6)] == [2, 8, 32, 120, 120]
    rest = timedelta(minutes=4)
    url = await migrated_file(tmp_path / "works.db")
    async with worker_harness_at(url, embedded, retry_first_pause=rest, retry_longest_pause=rest) as workers:
        await workers.open(total=500, kind="PICKY", stock=500)
        await workers.enter(*(f"poison-{n}" for n in range(150)), "ann")
        await workers.instance()
        await until(workers.rows)

        assert set(await workers.rows()) == {"ann"}
        assert (await workers.status()).dead == 0


async def test_a_temporary_failure_is_retried(workers: WorkerHarness):
    class RandomKind:
        kind = "MOODY"
        tries = 0

        def apply(
            self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]
        ) -> Sequence[EntryOutcome]:
            self.tries += 1
            if self.tries < 3:
                raise RuntimeError("not now")
            return [EntryOutcome(verdict=EntryVerdict.ISSUED)] * len(entries)

    workers.campaigns._kinds = ["MOODY"]  # pyright: ignore[reportPrivateUsage]
    await workers.open(kind="MOODY")
    await workers.instance("one", RandomKind())
    await workers.enter("ann")

    await workers.until_decided(1)
    assert (await workers.status()).dead == 0


async def test_an_unavailable_database_is_waited_for_without_counted_attempts(
    workers: WorkerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decider, "_AWAY_S", 0.01)  # it is away for longer
    await workers.open()
    await workers.instance()
    transaction, away = workers.database.transaction, True

    async def absent(*args: object, **named: object) -> object:
        if away:
            raise DatabaseUnavailable("it is away")
        return await transaction(*args, **named)  # pyright: ignore[reportCallIssue, reportArgumentType]

    monkeypatch.setattr(workers.database, "transaction", absent)
    await workers.enter("ann")
    await workers.until(lambda: _is_pending(workers, 1))
    await observe_absence(0.3)  # longer than a quiet campaign has a consumer pool
    assert (await workers.status()).processes == ["one"], "it has something in hand"
    away = False

    await workers.until_decided(1)
    assert workers.told == [(CAMPAIGN, "ann")]


async def test_a_consumer_pool_with_an_internal_error_returns_everything_and_is_replaced(
    workers: WorkerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker, "_AFTER_CRASH", Backoff(first=timedelta(milliseconds=1)))
    await workers.open()
    settle = scripts.settle

    async def falls(*_: object, **__: object) -> None:
        monkeypatch.setattr(scripts, "settle", settle)
        raise TypeError("a defect")

    monkeypatch.setattr(scripts, "settle", falls)
    await workers.instance()
    await workers.enter("ann", "bob")

    await workers.until_decided(2)
    assert (await workers.status()).dead == 0
    await workers.until_gone()


async def test_after_a_loss_of_data_the_campaign_is_restored_and_no_item_is_issued_twice(workers: WorkerHarness):
    await workers.open(total=4)
    one = await workers.instance()
    await workers.enter("ann", "bob")
    await workers.until_decided(2)

    await workers.valkey.execute("FLUSHALL")

    assert (await workers.campaigns.enter(CAMPAIGN, "ann")).answer == "DUPLICATE", "SQL knows her"
    await workers.enter("eve", "dan")
    assert (await workers.campaigns.enter(CAMPAIGN, "zoe")).answer == "SOLD_OUT"
    await workers.until_decided(4)
    assert {number for _, number in (await workers.rows()).values()} == {1, 2, 3, 4}
    await workers.until_gone()
    assert one.manager.pools == []


async def test_after_a_loss_of_the_last_writes_too_many_enter_and_sql_issues_no_more_than_the_stock(
    workers: WorkerHarness,
):
    await workers.open(total=3)
    await workers.instance()
    await workers.enter("ann", "bob", "eve")
    await workers.until_decided(3)
    keys = workers.keys()
    await workers.valkey.execute("HSET", keys["book"], "issued", 1, "next", 1)
    await workers.valkey.execute("HDEL", keys["entries"], "bob", "eve")

    await workers.enter("bob", "dan")
    await workers.until_decided(4)

    assert await workers.rows() == {
        "ann": ("issued", 1),
        "bob": ("issued", 2),
        "eve": ("issued", 3),
        "dan": ("sold_out", 3),
    }
    assert (await workers.status()).campaign.issued == 3
    assert (await workers.campaigns.enter(CAMPAIGN, "bob", "again")).answer == "DUPLICATE", "the door knows him again"
    assert (await workers.campaigns.enter(CAMPAIGN, "zoe")).answer == "SOLD_OUT", "and that nothing is left"
    assert (await workers.campaigns.result(CAMPAIGN, "dan")).state == "sold_out"
    await workers.campaigns.alter(CAMPAIGN, CampaignChange(stock=4))
    assert (await workers.campaigns.enter(CAMPAIGN, "zoe")).answer == "ACCEPTED"
    assert (await workers.campaigns.enter(CAMPAIGN, "dan")).answer == "SOLD_OUT", "it counts again what SQL has"


async def _has_letters(workers: WorkerHarness, count: int) -> bool:
    return (await workers.status()).dead == count


async def _is_pending(workers: WorkerHarness, count: int) -> bool:
    return (await workers.status()).pending == count


async def test_a_process_without_the_kind_leaves_entries_to_processes_that_have_it(
    workers: WorkerHarness, monkeypatch: pytest.MonkeyPatch
):
    """As while a new version is rolled out: nothing is wrong with the entries, so none becomes a dead letter."""
    monkeypatch.setattr(worker, "_AFTER_CRASH", Backoff(first=timedelta(milliseconds=50)))
    workers.campaigns._kinds = [Novel.kind]  # pyright: ignore[reportPrivateUsage]
    await workers.open(total=50, kind=Novel.kind, stock=50)
    old = await workers.instance("old")
    await workers.enter(*(f"user-{n}" for n in range(30)))
    crashes = old.manager._crashes  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(PATIENCE_S):
        while crashes[CAMPAIGN] < 2:
            await look_again()
    assert (await workers.status()).dead == 0

    await workers.instance("new", Novel())
    await workers.until_decided(30)
    assert (await workers.status()).dead == 0


class Novel(Picky):
    """Of a new version."""

    kind = "NOVEL"
