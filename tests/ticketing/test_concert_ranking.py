"""What is popular: order without numbers, in one batch, and empty when nobody can say."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from examples.ticketing.concert_ranking import popular_concerts
from sqlalchemy import Engine, event

from tests.servers.migrated import migrated_file
from tests.servers.valkey import ValkeyServer
from tests.ticketing.harness import TicketingHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.storage.valkey.connection import connected
from tidegate.systems.ranking.model import RankingPeriod


async def sold(harness: TicketingHarness, **how_many: int) -> dict[str, int]:
    """Concerts, with so many tickets sold of each; their ids."""
    ids: dict[str, int] = {}
    for title, tickets in how_many.items():
        ids[title] = await harness.concert(title)
        sale = await harness.sale(concert=ids[title], seats=max(1, tickets))
        for number in range(1, tickets + 1):
            await harness.enter(sale, f"{title}-{number}")
            await harness.buy(sale, f"A{number}", f"{title}-{number}")
    await harness.relay()
    return ids


async def titles(harness: TicketingHarness, period: RankingPeriod = RankingPeriod.DAILY, limit: int = 10) -> list[str]:
    return [concert.title for concert in (await popular_concerts(harness.shop, period, limit)).concerts]


async def test_concerts_are_ranked_by_completed_payments(harness: TicketingHarness):
    await harness.declare()
    await sold(harness, quiet=0, loud=3, mild=1, wild=2)

    assert await titles(harness) == ["loud", "wild", "mild"]
    assert await titles(harness, limit=1) == ["loud"]


async def test_a_reservation_that_is_not_paid_does_not_count(harness: TicketingHarness):
    await harness.declare()
    sale = await harness.sale()
    await harness.enter(sale, "ada")
    await harness.reserve(sale, "A1", "ada")
    await harness.relay()

    assert await titles(harness) == []


async def test_yesterday_counts_for_the_month_and_not_for_the_day(harness: TicketingHarness):
    await harness.declare()
    await sold(harness, loud=1)
    harness.clock.advance(timedelta(days=1))

    assert (await titles(harness), await titles(harness, RankingPeriod.MONTHLY)) == ([], ["loud"])


async def test_a_repeated_event_changes_nothing(harness: TicketingHarness):
    await harness.declare()
    sale = await harness.sale()
    await harness.enter(sale, "ada")
    await harness.buy(sale, "A1", "ada")
    events = await harness.events()

    await harness.relay(events)
    await harness.relay(events)

    assert await harness.ranked() == [("1", 1)]


async def test_the_number_of_purchases_is_not_shown(harness: TicketingHarness):
    await harness.declare()
    await sold(harness, loud=3)

    shown: dict[str, Any] = msgspec.to_builtins(await popular_concerts(harness.shop))

    assert shown == {
        "period": "daily",
        "concerts": [{"id": 1, "title": "loud", "artist": "loud Band", "venue": "Harbour Hall"}],
        "degraded": False,
    }


@pytest.mark.parametrize("limit", [0, -1, 101])
async def test_an_invalid_limit_is_refused(harness: TicketingHarness, limit: int):
    with pytest.raises(InvalidArgument):
        await popular_concerts(harness.shop, limit=limit)


async def test_the_details_of_all_concerts_are_read_in_one_statement(harness: TicketingHarness):
    await harness.declare()
    await sold(harness, **{f"concert {n}": 1 for n in range(8)})
    statements: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        popular = await popular_concerts(harness.shop)
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    assert len(popular.concerts) == 8
    assert len(statements) == 1, statements


async def test_without_the_server_the_ranking_is_empty_and_marked_degraded(tmp_path: Path):
    server = ValkeyServer()
    async with connected(server.url) as valkey:
        url = await migrated_file(tmp_path / "shop.db")
        async with harness_at(url, valkey, ManualClock(), tmp_path) as harness:
            await harness.declare()
            await sold(harness, loud=1)
            assert await titles(harness) == ["loud"]
            server.stop()

            popular = await popular_concerts(harness.shop)

            assert (popular.concerts, popular.degraded) == ([], True)
