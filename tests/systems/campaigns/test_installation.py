"""How a campaign comes to the server, and comes again after a loss."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN, CampaignHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.core.errors import NotFound
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.campaign_store import campaign_entries, campaigns
from tidegate.systems.campaigns.installation import CampaignInstaller
from tidegate.systems.campaigns.model import CampaignChange

WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[CampaignHarness]:
    async with harness_at(await migrated_file(tmp_path / "shop.db"), embedded, clock) as opened:
        yield opened


async def test_after_a_loss_of_data_all_users_are_restored_and_numbers_continue(harness: CampaignHarness):
    await harness.open(total=3000)
    await harness.database.transaction(_issue, 2300)
    await harness.valkey.execute("FLUSHALL")

    answers = await asyncio.gather(*(harness.campaigns.enter(CAMPAIGN, f"user-{n}", "key") for n in (1, 1000, 2300)))
    assert [(each.answer, each.number) for each in answers] == [("ACCEPTED", 1), ("ACCEPTED", 1000), ("ACCEPTED", 2300)]
    assert await harness.line() == [], "with the same key the answer is the same, and nobody is in line again"
    assert (await harness.campaigns.enter(CAMPAIGN, "user-7", "other")).answer == "DUPLICATE"
    assert (await harness.campaigns.enter(CAMPAIGN, "ann")).number == 2301
    assert (await harness.database.read(campaign_store.get, CAMPAIGN)).epoch == 2, "one restoration for all who came"
    assert [entry.epoch for entry in await harness.line()] == [2]


async def test_concurrent_restorations_restore_once(harness: CampaignHarness):
    await harness.open()
    await harness.valkey.execute("FLUSHALL")
    await asyncio.gather(*(harness.campaigns.installer.restore(CAMPAIGN) for _ in range(5)))
    assert (await harness.database.read(campaign_store.get, CAMPAIGN)).epoch == 2


async def test_an_unknown_campaign_name_costs_no_write_transaction(
    harness: CampaignHarness, monkeypatch: pytest.MonkeyPatch
):
    async def written(*_: object) -> None:
        raise AssertionError("nothing is to be written")

    monkeypatch.setattr(harness.database, "transaction", written)
    with pytest.raises(NotFound):
        await harness.campaigns.enter("no-such", "ann")


async def test_a_change_of_the_settings_keeps_the_counters(harness: CampaignHarness):
    await harness.open(total=2)
    assert [(await harness.campaigns.enter(CAMPAIGN, user)).number for user in ("ann", "bob")] == [1, 2]
    assert (await harness.campaigns.enter(CAMPAIGN, "eve")).answer == "SOLD_OUT"

    await harness.campaigns.alter(CAMPAIGN, CampaignChange(stock=3))

    assert (await harness.campaigns.enter(CAMPAIGN, "eve")).number == 3
    assert (await harness.campaigns.enter(CAMPAIGN, "dan")).answer == "SOLD_OUT"


async def test_an_outdated_installation_changes_nothing(harness: CampaignHarness):
    campaign = await harness.open(total=2)
    await harness.campaigns.stop(CAMPAIGN)

    installer = CampaignInstaller(harness.valkey, harness.database)
    assert await installer._send(campaign, counters=()) == b"newer"  # pyright: ignore[reportPrivateUsage]
    assert (await harness.campaigns.enter(CAMPAIGN, "ann")).answer == "NOT_OPEN"


async def test_users_are_remembered_in_valkey_for_a_week_after_the_end(harness: CampaignHarness, clock: ManualClock):
    await harness.open(total=5)
    await harness.campaigns.enter(CAMPAIGN, "ann")
    for key in (harness.keys()["entries"], harness.keys()["book"]):
        assert await harness.valkey.execute("PTTL", key) == -1, "it has no end"

        await harness.campaigns.alter(CAMPAIGN, CampaignChange(ends_at=clock.now() + timedelta(milliseconds=WEEK_MS)))
        assert await harness.valkey.execute("PTTL", key) == pytest.approx(2 * WEEK_MS, abs=60_000)
        await harness.campaigns.alter(CAMPAIGN, CampaignChange(ends_at=None))
        assert await harness.valkey.execute("PTTL", key) == -1


async def test_a_campaign_that_ended_long_ago_is_installed_without_its_users_until_it_is_reopened(
    harness: CampaignHarness, clock: ManualClock
):
    """Somebody who comes to an old door must not bring thousands of users back to the server."""
    await harness.open(total=50)
    await harness.database.transaction(_issue, 20)
    await harness.campaigns.alter(CAMPAIGN, CampaignChange(ends_at=clock.now() + timedelta(days=1)))
    clock.advance(timedelta(days=9))
    await harness.valkey.execute("FLUSHALL")  # as after a week

    assert (await harness.campaigns.enter(CAMPAIGN, "user-7", "key")).answer == "NOT_OPEN"
    assert (await harness.campaigns.status(CAMPAIGN)).remembered == 0
    await harness.campaigns.start(CAMPAIGN, ends_at=clock.now() + timedelta(days=1))
    assert (await harness.campaigns.enter(CAMPAIGN, "user-7", "other")).number == 7
    assert (await harness.campaigns.enter(CAMPAIGN, "ann")).number == 21


def _issue(tx: Transaction, count: int) -> None:
    """As if so many had been here."""
    row = {"campaign": CAMPAIGN, "epoch": 1, "entry_key": "key", "outcome": "issued", "points": 0, "decided_at": tx.now}
    tx.execute(insert(campaign_entries), [{**row, "user_id": f"user-{n}", "number": n} for n in range(1, count + 1)])
    tx.execute(update(campaigns).where(campaigns.c.id == CAMPAIGN).values(issued=count))
