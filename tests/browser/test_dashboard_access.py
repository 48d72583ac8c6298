"""The dashboard is for everybody: every page with real data, in light and in dark, on a desk and on a narrow phone.

With TIDEGATE_TEST_PICTURES=FOLDER the same visit leaves its pictures there. Those of the guides: `make pictures`.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from examples.live.activity import ROOM
from examples.live.deployment import Deployment, open_deployment
from examples.live.upstreams import BROKEN_CHARACTER
from playwright.async_api import Page, ViewportSize, expect

from tests.browser.chromium import Visitors, Watched
from tests.browser.test_access import COLOURS, NARROW, faults, too_wide

pytestmark = pytest.mark.asyncio(loop_scope="session")

DESK, PHONE = ViewportSize(width=1280, height=860), ViewportSize(width=390, height=844)
FOLDER = os.environ.get("TIDEGATE_TEST_PICTURES")
BEFORE_PICTURES = timedelta(seconds=80)
"""How long things go on before somebody takes a picture: some windows of a quota."""
MARGIN, LEAST_HEIGHT = 32, 720
"""A picture ends a little below its page, and not before the navigation does."""
MOST_BYTES = 200_000
LAYOUT = {"runOnly": ["button-name", "link-name", "scrollable-region-focusable", "target-size"]}
"""What may be otherwise on a narrow screen."""
CAMPAIGN = "coupons-1"


@dataclass(frozen=True)
class View:
    """A page, what is to be seen there before it is looked at, and the pictures that it is worth."""

    place: str
    heading: str
    shows: str
    """A selector of something that real data fills."""
    light: str = ""
    dark: str = ""
    phone: str = ""
    moment: str = ""
    """What makes a moment worth a picture."""
    unfolds: str = ""
    """What is opened there, since it is closed at first."""
    is_whole: bool = False
    """Whether a picture shows all of it, down to its end."""


def table(caption: str, holds: str = "") -> str:
    return f'table:has(caption:text-is("{caption}")) tbody :is(th, td):has-text("{holds}")'


def views(run: dict[str, Any]) -> list[View]:
    """All of them; `run` is one under way."""
    waits, used_up = table("Waiting jobs"), '.badge:has-text("exhausted")'
    letter = f'th:has-text("character/{BROKEN_CHARACTER}")'
    return [
        View(f"#/runs/{run['id']}", run["login"], table("Progress by kind of job"), "run"),  # first: it ends soon
        View("#/", "Overview", ".tile-value", "overview", "overview-dark", "phone", moment=waits, is_whole=True),
        View("#/runs", "Runs", table("Runs")),
        View("#/subjects", "Subjects", table("Subjects, by id")),
        View("#/quotas", "Quotas", ".chart-box canvas", dark="quotas-dark", moment=used_up),
        View("#/runtime", "Runtime", table("Streams", "jobs"), "runtime"),
        View("#/snapshots", "Snapshots", table("Subjects by freshness", "fresh"), "snapshots"),
        View("#/rooms", "Rooms", table("Rooms, by name", ROOM), "rooms"),
        View(f"#/rooms/{ROOM}", f"Room {ROOM}", ".tile-value"),
        View("#/campaigns", "Campaigns", table("Campaigns, by id", CAMPAIGN), "campaigns"),
        View(f"#/campaigns/{CAMPAIGN}", f"Campaign {CAMPAIGN}", table("Processed entries", "user-1")),
        View("#/crawl", "Crawl", ".tile-value", dark="crawl-dark", moment=table("Active crawls")),
        *(View(f"#/crawl/{each}", "Crawl", "tbody th") for each in ("products", "raws", "hosts", "identities")),
        View("#/dead", "Dead letters", ".tab[aria-current]"),
        *(View(f"#/dead/{each}", "Dead letters", ".empty-title") for each in ("events", "messages")),
        View("#/dead/snapshots", "Dead letters", letter, "dead", unfolds=f"{letter} button"),
        *(View(f"#/dead/{each}", "Dead letters", ".section") for each in ("campaigns", "crawl")),
        View("#/schedules", "Schedules", '.badge:has-text("active")'),
        View("#/credentials", "Credentials", '.badge:has-text("valid")'),
    ]


LONG_WATCHED = ("#/rooms", "#/campaigns")
"""Their charts begin when the page does."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def demo() -> AsyncGenerator[Deployment]:
    async with open_deployment() as deployment:
        yield deployment


@pytest_asyncio.fixture(loop_scope="session")
async def activity(demo: Deployment) -> AsyncGenerator[asyncio.Task[None]]:
    """Everything that goes on in it, until it is cancelled."""
    task = asyncio.create_task(demo.activity.go_on())
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def heard(demo: Deployment) -> AsyncGenerator[dict[str, Any]]:
    """What the page is told, the newest of each topic, whenever one of them moved."""
    told = dict[str, Any]()
    query = "&".join(f"topic={topic}" for topic in ("overview", "rooms", "campaigns", "crawl"))
    async with aiohttp.ClientSession() as session, session.get(f"{demo.url}/v1/live?{query}") as answer:
        topic = ""
        async for line in answer.content:
            name, _, value = line.decode().strip().partition(": ")
            if name == "event":
                topic = value
            elif name == "data":
                told[topic] = msgspec.json.decode(value)
                yield told


async def lively(demo: Deployment, since: datetime | None = None) -> dict[str, Any]:
    """Until every page has something to show, and at least until `since`: the run that has most before it."""
    async for told in heard(demo):
        if len(told) == 4 and is_filled(**told):
            active = [
                run for run in told["overview"]["active"] if run["source"] == "github" and run["succeeded_jobs"] > 5
            ]
            if active and (since is None or datetime.fromisoformat(told["overview"]["at"]) > since):
                return max(active, key=lambda run: run["total_jobs"] - run["succeeded_jobs"])
    raise AssertionError("the stream ended")


def is_filled(overview: Any, rooms: Any, campaigns: Any, crawl: Any) -> bool:
    return (
        overview["runs"]["completed"] > 0
        and any(each["kind"] == "snapshots" and each["count"] for each in overview["dead"])
        and rooms["rooms"][0]["counts"]["active"] > 0
        and len(campaigns["campaigns"]) > 0
        and campaigns["campaigns"][0]["issued"] > 0
        and crawl["raws"]["processed_day"] > 0
    )


async def come_to(page: Page, view: View) -> None:
    """Until it is there as a whole."""
    await page.goto(f"{page.url.split('#')[0]}{view.place}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(view.heading)
    await expect(page).to_have_title(f"{view.heading} · Tidegate")
    await expect(page.locator(f"main {view.shows}").first).to_be_visible()
    if view.unfolds:
        await page.locator(f"main {view.unfolds}").first.click()
    await expect(page.locator("main :is(.skeleton, [aria-busy=true])")).to_have_count(0)


async def found_at(page: Page) -> list[str]:
    """What keeps somebody out of the page that is open."""
    await page.emulate_media(color_scheme="light")
    found = await faults(page)
    await page.emulate_media(color_scheme="dark")
    found += await faults(page, COLOURS)
    await page.set_viewport_size(NARROW)
    found += await faults(page, LAYOUT)
    found += [f"wider than a phone: {each}" for each in await too_wide(page)]
    await page.set_viewport_size(DESK)
    return found


async def take(page: Page, view: View) -> None:
    """The pictures of it, at a moment that is worth them."""
    assert FOLDER is not None
    looks = [(view.light, "light", DESK), (view.dark, "dark", DESK), (view.phone, "light", PHONE)]
    for name, scheme, size in looks:
        if not name:
            continue
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.set_viewport_size(size)
        if view.moment:
            await expect(page.locator(f"main {view.moment}").first).to_be_visible()
        if size == DESK:
            end = await page.locator(".page").evaluate("each => Math.ceil(each.getBoundingClientRect().bottom)")
            most = end + MARGIN if view.is_whole else DESK["height"]
            await page.set_viewport_size({**DESK, "height": max(LEAST_HEIGHT, min(most, end + MARGIN))})
        path = Path(FOLDER) / f"dashboard-{name}.png"
        await page.screenshot(path=path)
        assert path.stat().st_size < MOST_BYTES, path
    await page.set_viewport_size(DESK)


@pytest.mark.timeout(600)  # many pages, and more so where they are waited for
async def test_every_dashboard_page_is_accessible(demo: Deployment, activity: asyncio.Task[None], visitors: Visitors):
    watched = Watched()
    places = ("#/", *LONG_WATCHED) if FOLDER else ("#/",)
    pages = dict[str, Page]()
    for place in places:
        pages[place] = await visitors.come(watched=watched, viewport=DESK, reduced_motion="reduce")
        await pages[place].goto(f"{demo.url}/{place}")
    run = await lively(demo, datetime.now().astimezone() + BEFORE_PICTURES if FOLDER else None)
    if not FOLDER:
        activity.cancel()  # there is enough to see, and pages at rest are looked through faster
    found = dict[str, list[str]]()
    for view in views(run):
        page = pages.get(view.place, pages["#/"])
        await come_to(page, view)
        if FOLDER:
            await take(page, view)
        if each := await found_at(page):
            found[view.place] = each
    assert found == {}
    assert watched.complaints == []
    assert {urlsplit(address).netloc for address in watched.addresses} == {urlsplit(demo.url).netloc}
