"""Campaigns in SQL, on each database: what is written is what is read, and nonsense is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.campaign_store import IssuedUser, campaign_entries
from tidegate.systems.campaigns.model import FIRST_COME, POINTS, CampaignExists, CampaignPlan, CampaignState

PLAN = CampaignPlan(id="autumn", kind=FIRST_COME, total_count=10, title="Autumn | 가을")
LATER = datetime(2999, 1, 1, tzinfo=UTC)


def decide(tx: Transaction, *rows: tuple[str, int, str]) -> None:
    """As a consumer pool does."""
    values = {"campaign": "autumn", "epoch": 1, "entry_key": "k", "points": 0, "decided_at": tx.now}
    tx.execute(insert(campaign_entries), [{**values, "user_id": u, "number": n, "outcome": o} for u, n, o in rows])


@pytest.mark.every_server
async def test_a_campaign_passes_through_all_states_on_each_database(database: Database):
    """In one test, since each database takes its time to be made."""
    made = await database.transaction(campaign_store.create, PLAN)
    assert (made.state, made.stock, made.issued, made.epoch) == (CampaignState.CREATED, 10, 0, 0)
    with pytest.raises(CampaignExists):
        await database.transaction(campaign_store.create, PLAN)
    with pytest.raises(NotFound):
        await database.read(campaign_store.get, "Autumn")  # ids differ by case

    started = await database.transaction(campaign_store.start, "autumn", None, LATER)
    assert (started.state, started.ends_at) == (CampaignState.OPEN, LATER)
    assert started.starts_at is not None
    again = await database.transaction(campaign_store.start, "autumn", None, None)
    assert (again.starts_at, again.ends_at) == (started.starts_at, LATER)
    assert (await database.transaction(campaign_store.stop, "autumn")).state is CampaignState.STOPPED
    altered = await database.transaction(campaign_store.alter, "autumn", {"stock": 5, "title": ""})
    assert (altered.stock, altered.title) == (5, "")
    assert await database.read(campaign_store.get, "autumn") == altered

    assert (await database.transaction(campaign_store.begin_epoch, "autumn"))[1] == 0
    rows = [("b", 2, "issued"), ("a", 2, "issued"), ("Ä", 1, "refused"), ("c", 7, "issued")]
    await database.transaction(decide, *rows)
    epoch, highest = await database.transaction(campaign_store.begin_epoch, "autumn")
    assert (epoch.epoch, highest) == (2, 7)
    pages, after = list[str](), None
    while found := await database.read(campaign_store.entries, "autumn", after, 1):
        pages += [each.user for each in found]
        after = (found[-1].number, found[-1].user)
    assert pages == ["Ä", "a", "b", "c"]
    known = await database.read(campaign_store.issued_users, "autumn", None, 2)
    known += await database.read(campaign_store.issued_users, "autumn", known[-1], 2)
    assert known == [IssuedUser("a", 2, "k"), IssuedUser("b", 2, "k"), IssuedUser("c", 7, "k")], (
        "who was refused may come again"
    )
    decided = await database.read(campaign_store.decided, "autumn", "Ä")
    assert decided is not None
    assert (decided.number, decided.outcome.verdict, decided.key) == (1, "refused", "k")
    assert await database.read(campaign_store.decided, "autumn", "ä") is None
    assert await database.read(campaign_store.points_of, "a") == 0

    await database.transaction(campaign_store.create, CampaignPlan(id="winter", kind=POINTS, total_count=1, points=1))
    assert [each.id for each in await database.read(campaign_store.page, None, 10)] == ["autumn", "winter"]
    assert await database.read(campaign_store.ids, "autumn", 10) == ["winter"]


@pytest.mark.parametrize(
    "plan",
    [
        {"id": ""},
        {"id": "a/b"},
        {"id": "x" * 65},
        {"kind": "no kind"},
        {"total_count": 0},
        {"total_count": True},
        {"stock": -1},
        {"kind": POINTS},
        {"points": -1},
        {"title": "x" * 201},
        {"title": "a\nb"},
        {"starts_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is what is wrong with it
        {"starts_at": LATER, "ends_at": LATER},
    ],
)
def test_invalid_campaign_settings_are_refused(plan: dict[str, Any]):
    good: dict[str, Any] = {"id": "autumn", "kind": FIRST_COME, "total_count": 10}
    with pytest.raises(InvalidArgument):
        CampaignPlan(**{**good, **plan})


@pytest.mark.every_server
@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_an_issued_entry_stays_issued_and_an_ended_campaign_is_not_started(database: Database):
    await database.transaction(campaign_store.create, PLAN)
    past = datetime.now(UTC) - timedelta(seconds=1)
    with pytest.raises(InvalidArgument, match="over"):
        await database.transaction(campaign_store.start, "autumn", past - timedelta(days=1), past)
    with pytest.raises(InvalidArgument, match="after the start"):
        await database.transaction(campaign_store.alter, "autumn", {"starts_at": LATER, "ends_at": past})
    await database.transaction(campaign_store.alter, "autumn", {"issued": 3})
    with pytest.raises(InvalidArgument, match="3 that are issued"):
        await database.transaction(campaign_store.alter, "autumn", {"stock": 2})
