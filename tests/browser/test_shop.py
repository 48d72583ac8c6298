"""The ticket shop in a real browser: from the line to the ticket, and to the ranking that shows it."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from examples.ticketing import catalogue
from examples.ticketing.reservations import room_of
from examples.ticketing.shop import Shop, make_tables, open_shop, process_of
from examples.ticketing.web import serve
from playwright.async_api import Page, expect

from tests.browser.chromium import Visitors, Watched
from tests.browser.test_access import COLOURS, NARROW, faults, too_wide
from tests.servers.migrated import migrated_folder
from tests.servers.valkey import empty_valkey
from tests.waiting import patience
from tidegate.http import Binding
from tidegate.http.settings import HttpSettings
from tidegate.settings import Settings
from tidegate.systems.waiting_room import RoomPlan, WaitingRoom

pytestmark = pytest.mark.asyncio(loop_scope="session")

TITLE = "Songs of Low Water"


@dataclass
class Site:
    """A shop with one evening on sale; one may be inside at a time."""

    shop: Shop
    url: str
    schedule: int
    room: WaitingRoom

    async def come(self, *users: str) -> list[str]:
        """They join the line; their passes."""
        return [(await self.room.join(user)).token or "" for user in users]


@asynccontextmanager
async def opened(folder: Path, valkey_url: str) -> AsyncGenerator[Site]:
    """A whole process, for the length of a block."""
    settings = Settings(data_dir=await migrated_folder(folder), valkey_url=valkey_url)
    with Binding(HttpSettings(port=0)) as binding:
        async with open_shop(settings) as shop:
            await make_tables(shop.database)
            concert = await shop.database.transaction(catalogue.add_concert, TITLE, "Mira Han", "Old Customs House")
            starts_at = datetime.now(UTC) + timedelta(days=30)
            schedule = await shop.open_sale(concert, starts_at, seats=90, price=55_000, room=RoomPlan(capacity=1))
            process = process_of(shop, {"http": serve(shop, binding)})
            running = asyncio.create_task(process.run())
            yield Site(shop, binding.url, schedule, await shop.rooms.room(room_of(schedule)))
            process.stop()
            assert (await running).is_clean


@pytest_asyncio.fixture(loop_scope="session")
async def shop_site(tmp_path: Path, embedded_url: str) -> AsyncGenerator[Site]:
    async with empty_valkey(embedded_url), opened(tmp_path, embedded_url) as site:
        yield site


async def see_ranking(page: Page, site: Site) -> None:
    """Look until the event has arrived."""
    async with patience():
        while not await page.locator(".ranking").count():
            await page.goto(f"{site.url}/?period=weekly")
            await page.wait_for_timeout(100)


async def test_a_visitor_waits_is_admitted_buys_a_seat_and_sees_it_ranked(shop_site: Site, visitors: Visitors):
    first, second = await shop_site.come("early-1", "early-2")
    watched = Watched()
    page = await visitors.come(watched=watched)

    async with patience():  # the ranking begins a moment after the shop
        while not await page.get_by_text("Nobody has bought anything yet.").count():
            await page.goto(shop_site.url)
            await page.wait_for_timeout(100)
    await page.get_by_role("link", name="Buy tickets").click()
    await expect(page).to_have_url(re.compile(r"/rooms/schedule-\d+"))
    await page.get_by_role("button", name="Join the line").click()
    await expect(page.locator("#place")).to_have_text("2")
    await shop_site.room.leave(first)
    await expect(page.locator("#place")).to_have_text("1")
    await shop_site.room.leave(second)

    await page.wait_for_url(f"{shop_site.url}/schedules/{shop_site.schedule}")
    await page.get_by_role("button", name="Seat B7, ₩110,000").click()
    await expect(page.get_by_role("heading", name="Seat B7")).to_be_visible()
    await page.get_by_label("Card").select_option("4000 … 0002 — will be refused")
    await page.get_by_role("button", name="Pay ₩110,000").click()
    await expect(page.get_by_role("alert")).to_contain_text("The bank refused the card")
    await page.get_by_label("Card").select_option("4242 … 4242 — a good one")
    await page.get_by_role("button", name="Pay ₩110,000").click()
    await expect(page.get_by_role("heading", name="Your ticket")).to_be_visible()
    await expect(page.get_by_role("article")).to_contain_text("B7")

    await see_ranking(page, shop_site)
    await expect(page.locator(".ranking")).to_contain_text(TITLE)
    # The bank's refusal is told with its status, which a browser notes.
    assert [each for each in watched.complaints if "402" not in each] == []
    assert {urlsplit(address).netloc for address in watched.addresses} == {urlsplit(shop_site.url).netloc}


async def test_every_page_of_the_shop_is_accessible(shop_site: Site, visitors: Visitors):
    page = await visitors.come(viewport=NARROW, java_script_enabled=True)

    async def check(heading: str) -> None:
        await expect(page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        assert await too_wide(page) == []
        await page.emulate_media(color_scheme="light")
        assert await faults(page) == []
        await page.emulate_media(color_scheme="dark")
        assert await faults(page, COLOURS) == []

    await page.goto(shop_site.url)
    await check("On sale")
    await page.get_by_role("link", name="Buy tickets").click()
    await page.get_by_role("button", name="Join the line").click()
    await page.wait_for_url(f"{shop_site.url}/schedules/{shop_site.schedule}")
    await check(TITLE)
    await page.get_by_role("button", name="Seat A1,").click()
    await check("Seat A1")
    await page.get_by_role("button", name="Pay").click()
    await check("Your ticket")
    await see_ranking(page, shop_site)
    await check("On sale")
    await page.goto(f"{shop_site.url}/tickets/none")
    await check("That did not work")
