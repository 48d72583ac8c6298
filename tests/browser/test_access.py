"""For everybody: every scene is checked for what keeps people out, in light and in dark, and on a narrow phone."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, ViewportSize

from tests.browser.chromium import Visitors, Watched
from tests.browser.gallery import address, as_kept, scenes, wired_site
from tests.http.room_site import RoomSite
from tests.http.serving import Client
from tests.http.test_room_pages import press
from tests.servers.proxy import Proxy
from tidegate.http.pages.scene import Scene

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


async def test_no_scene_keeps_anybody_out(wired: tuple[RoomSite, Proxy], visitors: Visitors):
    site, wire = wired
    shown, watched = set[str](), Watched()
    page = await visitors.come(viewport=NARROW, watched=watched)
    async for scene, cookies in scenes(site, wire):
        await page.context.clear_cookies()
        await page.emulate_media(color_scheme="light")
        await page.context.add_cookies(as_kept(site, cookies))
        await page.goto(address(site, scene, "en"))
        assert await page.locator("main").get_attribute("data-scene") == scene
        shown.add(scene)
        await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert await too_wide(page) == [], scene
        assert await faults(page) == [], scene
        await page.emulate_media(color_scheme="dark")
        assert await faults(page, COLOURS) == [], scene
        await page.goto(address(site, scene, "ko"))
        assert await too_wide(page) == [], scene
        await page.goto("about:blank")  # who still watched would see the next scene begin, and act on it
    assert shown == set(Scene) - {Scene.THROTTLED}, "which only an attempt to join shows: see below"
    # A status that says that something is missing or away is told by the browser as well.
    assert [each for each in watched.complaints if "status of" not in each] == []


async def test_the_page_for_too_many_visitors_keeps_nobody_out(site: RoomSite, visitors: Visitors):
    await site.open()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        while (await press(Client(session, site.url), site.path, "join")).status == 303:
            pass
    page = await visitors.come(viewport=NARROW, watched=Watched())

    await page.goto(f"{site.url}{site.path}?lang=en")
    await page.locator("button[value=join]").click()

    await page.locator("main[data-scene=throttled]").wait_for()
    assert await too_wide(page) == []
    assert await faults(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await faults(page, COLOURS) == []
