"""What SQL decides: once for each user, never more than the stock, and the same again for what comes again."""

from collections.abc import Sequence

import pytest
from sqlalchemy import select, text

from tests.systems.campaigns.worker_harness import Picky
from tidegate.core.errors import ContractBroken
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.campaign_store import campaign_entries
from tidegate.systems.campaigns.entry_decisions import AppliedEntries, apply_entries
from tidegate.systems.campaigns.kinds import FirstCome, Kinds, Points
from tidegate.systems.campaigns.model import FIRST_COME, POINTS, Campaign, CampaignEntry, CampaignPlan, EntryOutcome

KINDS = Kinds([FirstCome(), Points(), Picky()])
ISSUED, REFUSED, SOLD_OUT, KNOWN = "issued", "refused", "sold_out", "known"


@pytest.fixture
def decisions(database: Database) -> "DecisionHarness":
    """On each kind of database."""
    return DecisionHarness(database)


class DecisionHarness:
    def __init__(self, database: Database) -> None:
        self.database = database

    async def open(self, kind: str = FIRST_COME, *, total: int = 3, stock: int | None = None) -> None:
        plan = CampaignPlan(id="it", kind=kind, total_count=total, stock=stock, points=5)
        await self.database.transaction(campaign_store.create, plan)

    async def decide(self, *entries: tuple[str, int], epoch: int = 1) -> list[str]:
        return [decision.verdict for decision in (await self.apply(*entries, epoch=epoch)).decisions]

    async def apply(self, *entries: tuple[str, int], epoch: int = 1) -> AppliedEntries:
        given = [
            CampaignEntry(user=user, number=number, epoch=epoch, at_ms=0, key=f"k{number}") for user, number in entries
        ]
        return await self.database.transaction(apply_entries, KINDS, "it", given)

    async def rows(self) -> Sequence[tuple[str, int, str]]:
        def found(tx: Transaction) -> list[tuple[str, int, str]]:
            c = campaign_entries.c
            return [tuple(row) for row in tx.execute(select(c.user_id, c.number, c.outcome).order_by(c.user_id))]

        return await self.database.read(found)

    async def issued(self) -> int:
        return (await self.database.read(campaign_store.get, "it")).issued


@pytest.mark.every_server
async def test_issued_entries_never_exceed_the_stock_and_the_lowest_numbers_get_it(decisions: DecisionHarness):
    await decisions.open(total=3)

    assert await decisions.decide(("eve", 5), ("dan", 4)) == [ISSUED, ISSUED]
    assert await decisions.decide(("cat", 3), ("Ann", 1), ("bob", 2)) == [SOLD_OUT, ISSUED, SOLD_OUT]

    assert await decisions.issued() == 3
    applied = await decisions.apply(("zoë", 9))
    assert ([each.verdict for each in applied.decisions], applied.sold_out) == ([SOLD_OUT], 3), "the door must hear it"


class SellsElsewhere(FirstCome):
    """Issues what it is asked for, and the rest of the stock as well, in a way that the engine does not know of."""

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> Sequence[EntryOutcome]:
        tx.execute(text("UPDATE campaigns SET issued = stock"))
        return super().apply(tx, campaign, entries)


async def test_the_count_in_sql_limits_the_stock_whatever_a_kind_returns(decisions: DecisionHarness):
    await decisions.open(total=3)
    entries = [CampaignEntry(user="ann", number=1, epoch=1, at_ms=0, key="k1")]

    with pytest.raises(ContractBroken, match="1 left to issue"):
        await decisions.database.transaction(apply_entries, Kinds([SellsElsewhere()]), "it", entries)

    assert (await decisions.issued(), await decisions.rows()) == (0, []), "the transaction was rolled back"


async def test_a_repeated_entry_keeps_its_result_and_counts_once(decisions: DecisionHarness):
    await decisions.open(total=2)
    batch = (("ann", 1), ("bob", 2))

    assert await decisions.decide(*batch) == [ISSUED, ISSUED]
    before = await decisions.database.read(campaign_store.decided, "it", "ann")
    applied = await decisions.apply(*batch)

    assert [each.verdict for each in applied.decisions] == [ISSUED, ISSUED]
    assert applied.sold_out == -1, "nobody came for whom nothing was left"
    assert await decisions.issued() == 2
    assert await decisions.database.read(campaign_store.decided, "it", "ann") == before, "the code is the same"


async def test_a_user_forgotten_by_valkey_keeps_the_earlier_result(decisions: DecisionHarness):
    """And a number means nothing without its epoch: after a loss the door gives some of them again."""
    await decisions.open(total=5)
    await decisions.decide(("ann", 1))

    applied = await decisions.apply(("ann", 1), ("ann", 2), epoch=2)

    assert [(each.verdict, each.memory) for each in applied.decisions] == [(KNOWN, "1|k1")] * 2
    assert await decisions.issued() == 1


async def test_a_user_twice_in_one_batch_is_decided_once(decisions: DecisionHarness):
    await decisions.open(total=5)
    assert await decisions.decide(("ann", 2), ("ann", 1), ("bob", 3)) == [KNOWN, ISSUED, ISSUED]
    assert await decisions.issued() == 2


@pytest.mark.every_server
async def test_a_user_without_an_item_may_enter_again_but_the_same_entry_keeps_its_result(decisions: DecisionHarness):
    await decisions.open("PICKY", total=5, stock=1)

    assert await decisions.decide(("no", 1), ("ann", 2), ("bob", 3)) == [REFUSED, ISSUED, SOLD_OUT]
    assert await decisions.decide(("no", 1), ("bob", 3)) == [REFUSED, SOLD_OUT]
    await decisions.database.transaction(campaign_store.alter, "it", {"stock": 3})
    assert await decisions.decide(("bob", 3)) == [SOLD_OUT], "it came again, and was decided"
    assert await decisions.decide(("bob", 3), epoch=2) == [ISSUED], "another entry, with the same number"
    assert await decisions.decide(("no", 7), epoch=2) == [REFUSED]
    assert await decisions.rows() == [("ann", 2, ISSUED), ("bob", 3, ISSUED), ("no", 7, REFUSED)]


@pytest.mark.every_server
async def test_points_are_credited_once_with_the_entry(decisions: DecisionHarness):
    await decisions.open(POINTS, total=10)

    assert await decisions.decide(("bob", 2), ("ann", 1)) == [ISSUED, ISSUED]
    assert await decisions.decide(("ann", 1), ("eve", 3)) == [ISSUED, ISSUED]
    assert await decisions.decide(("ann", 9), epoch=2) == [KNOWN]

    points = [await decisions.database.read(campaign_store.points_of, user) for user in ("ann", "bob", "eve", "dan")]
    assert points == [5, 5, 5, 0]
