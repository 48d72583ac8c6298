"""Every state of the page is checked for accessibility, in light and in dark, and on a narrow phone."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, ViewportSize

from tests.browser.chromium import Visitors, Watched
from tests.browser.gallery import address, as_kept, page_states, wired_site
from tests.http.serving import Client
from tests.servers.proxy import Proxy
from tests.systems.waiting_room.room_site import RoomSite
from tests.systems.waiting_room.test_pages import press
from tidegate.systems.waiting_room.api.pages.page_state import PageState

pytestmark = pytest.mark.asyncio(loop_scope="session")

NARROW = ViewportSize(width=320, height=640)
COLOURS = {"runOnly": ["color-contrast"]}
AXE = Axe()


@pytest_asyncio.fixture(loop_scope="session")
async def wired(tmp_path: Path) -> AsyncGenerator[tuple[RoomSite, Proxy]]:
    async with wired_site(tmp_path) as started:
        yield started


async def faults(page: Page, options: dict[str, Any] | None = None) -> list[str]:
    """What is serious or critical."""
    found = (await AXE.run(page, options=options)).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['html']}: {each['nodes'][0]['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


async def too_wide(page: Page) -> list[str]:
    """What is wider than the screen."""
    return await page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("*")]
            .filter(each => each.getBoundingClientRect().right > innerWidth)
            .map(each => each.outerHTML.slice(0, 100))"""
    )


async def test_every_state_of_the_waiting_page_is_accessible(wired: tuple[RoomSite, Proxy], visitors: Visitors):
    site, wire = wired
    shown, watched = set[str](), Watched()
    page = await visitors.come(viewport=NARROW, watched=watched)
    async for state, cookies in page_states(site, wire):
        await page.context.clear_cookies()
        await page.emulate_media(color_scheme="light")
        await page.context.add_cookies(as_kept(site, cookies))
        await page.goto(address(site, state, "en"))
        assert await page.locator("main").get_attribute("data-state") == state
        shown.add(state)
        await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert await too_wide(page) == [], state
        assert await faults(page) == [], state
        await page.emulate_media(color_scheme="dark")
        assert await faults(page, COLOURS) == [], state
        await page.goto(address(site, state, "ko"))
        assert await too_wide(page) == [], state
        await page.goto("about:blank")  # who still watched would see the next state begin, and act on it
    assert shown == set(PageState) - {PageState.THROTTLED}, "which only an attempt to join shows: see below"
    # A status that says that something is missing or away is told by the browser as well.
    assert [each for each in watched.complaints if "status of" not in each] == []


async def test_the_page_for_too_many_visitors_is_accessible(site: RoomSite, visitors: Visitors):
    await site.open()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        while (await press(Client(session, site.url), site.path, "join")).status == 303:
            pass
    page = await visitors.come(viewport=NARROW, watched=Watched())

    await page.goto(f"{site.url}{site.path}?lang=en")
    await page.locator("button[value=join]").click()

    await page.locator("main[data-state=throttled]").wait_for()
    assert await too_wide(page) == []
    assert await faults(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await faults(page, COLOURS) == []
