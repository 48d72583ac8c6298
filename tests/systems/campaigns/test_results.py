"""What became of an entry, as those see it who ask; and what operators see of all of them."""

import math
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import WorkerHarness, worker_harness_at
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.metrics import REGISTRY
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import metrics
from tidegate.systems.campaigns.campaign_store import campaign_entries
from tidegate.systems.campaigns.gauges import CampaignGauges
from tidegate.systems.campaigns.model import CampaignPlan, EntryAnswer


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey) -> AsyncGenerator[WorkerHarness]:
    async with worker_harness_at(await migrated_file(tmp_path / "works.db"), embedded) as opened:
        yield opened


async def test_a_queued_entry_is_pending_and_then_has_its_item(harness: WorkerHarness):
    await harness.open()
    assert (await harness.campaigns.result(CAMPAIGN, "ann")).state == "unknown"
    await harness.enter("ann")
    pending = await harness.campaigns.result(CAMPAIGN, "ann")
    assert (pending.state, pending.number, pending.is_final) == ("pending", 1, False)
    await harness.instance()
    await harness.until_decided(1)

    result = await harness.campaigns.result(CAMPAIGN, "ann")
    assert (result.state, result.number, result.is_final) == ("issued", 1, True)
    assert result.code
    await harness.valkey.execute("FLUSHALL")
    assert await harness.campaigns.result(CAMPAIGN, "ann") == result, "whatever the server says"


async def test_a_rejected_user_who_enters_again_is_pending_again(harness: WorkerHarness):
    await harness.open(kind="PICKY")
    one = await harness.instance()
    await harness.enter("no")
    await harness.until_decided(1)
    refused = await harness.campaigns.result(CAMPAIGN, "no")
    assert (refused.state, refused.reason, refused.number) == ("refused", "it said no", 1)
    await one.stop()

    await harness.enter("no")

    again = await harness.campaigns.result(CAMPAIGN, "no")
    assert (again.state, again.number, again.reason) == ("pending", 2, None)


async def test_a_decided_entry_is_shown_as_decided_before_valkey_knows(harness: WorkerHarness):
    """A process may die between the two; the row is what counts."""
    await harness.open(kind="PICKY")
    await harness.instance()
    await harness.enter("no")
    await harness.until_decided(1)
    await harness.database.transaction(_number, 9)
    await harness.valkey.execute("HSET", harness.keys()["entries"], "no", "9|k")

    assert (await harness.campaigns.result(CAMPAIGN, "no")).state == "refused"


async def test_points_are_shown_and_counted_on_the_account(harness: WorkerHarness):
    await harness.open(kind="POINTS", points=7)
    await harness.instance()
    await harness.enter("ann")
    await harness.until_decided(1)

    assert (await harness.campaigns.result(CAMPAIGN, "ann")).points == 7
    assert await harness.campaigns.points_of("ann") == 7


async def test_only_clients_that_follow_the_entry_are_notified(harness: WorkerHarness):
    await harness.open()
    async with harness.campaigns.watch(CAMPAIGN, "ann") as hers, harness.campaigns.watch(CAMPAIGN, "bob") as his:
        while await hers.wait(0.3) or await his.wait(0.01):  # at the start everybody is given a reason to look
            pass
        harness.campaigns.result_feed.decided(CAMPAIGN, ["ann"])

        assert await hers.wait(60)
        assert not await his.wait(0.05)


async def test_a_kind_that_no_process_knows_is_refused(harness: WorkerHarness):
    with pytest.raises(InvalidArgument, match="FIRST_COME, PICKY, POINTS"):
        await harness.campaigns.create(CampaignPlan(id="x", kind="LOTTERY", total_count=1))


async def test_gauges_sum_all_campaigns(harness: WorkerHarness):
    await harness.open(total=2)
    await harness.open("winter")
    before = _value("campaign_entries_total", answer="sold_out")
    for user in ("a", "b", "c"):
        await harness.campaigns.enter(CAMPAIGN, user)
    assert (await harness.campaigns.enter("winter", "a")).answer is EntryAnswer.ACCEPTED
    dead = ("dead.message", "1-1", "dead.deliveries", 1, "dead.reason", "x", "dead.at_ms", 1)
    await harness.valkey.execute("XADD", harness.keys("winter")["dead"], "*", "payload", "x", *dead)

    await CampaignGauges(harness.valkey, harness.database).refresh()

    assert _value("campaign_entries_total", answer="sold_out") == before + 1
    found = [_value(name) for name in ("campaigns_active", "campaign_pending", "campaign_dead_letters")]
    assert found == [2, 3, 1]
    labels = {tuple(sample.labels) for family in metrics.CAMPAIGN_PENDING.collect() for sample in family.samples}
    assert labels == {()}, "none for each campaign"


async def test_unknown_gauges_are_not_exported_as_numbers(harness: WorkerHarness):
    nowhere = Valkey("redis://127.0.0.1:1")
    await CampaignGauges(nowhere, harness.database).refresh()
    await nowhere.close()

    assert math.isnan(_value("campaign_pending"))
    assert math.isnan(_value("campaigns_active"))


def _value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def _number(tx: Transaction, number: int) -> None:
    tx.execute(update(campaign_entries).values(number=number))
