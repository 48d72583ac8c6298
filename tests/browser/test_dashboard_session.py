"""Who comes to the dashboard: with a key or without, with a keyboard only; and when the server goes for a while."""

import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect
from pydantic import SecretStr

from tests.browser.chromium import Visitors, Watched
from tests.browser.test_access import COLOURS, NARROW, faults, too_wide
from tests.http.serving import Served, served
from tests.servers.proxy import Proxy
from tidegate.http.settings import HttpSettings

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATE, READ = "a-key-of-who-may-act-0001", "a-key-of-who-may-look-0001"
MOST_STOPS = 40
"""So often at most the Tab key is pressed to get anywhere."""
PLACES = {
    "r": "Runs",
    "u": "Subjects",
    "q": "Quotas",
    "d": "Dead letters",
    "s": "Snapshots",
    "w": "Rooms",
    "c": "Campaigns",
    "x": "Crawl",
    "t": "Schedules",
    "k": "Credentials",
    "m": "Runtime",
    "o": "Overview",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    """A server that asks for a key. Nobody works: what is begun stays until it is canceled."""
    http = HttpSettings(api_key=SecretStr(OPERATE), read_keys=(SecretStr(READ),))
    keys = {"Authorization": f"Bearer {OPERATE}"}
    folder = tmp_path_factory.mktemp("guarded")
    async with served(folder, http=http, headers=keys, users=4, works=False, dashboard=True) as started:
        yield started


def heading(page: Page, text: str) -> Locator:
    return page.get_by_role("heading", level=1, name=text, exact=True)


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").click()


async def walk_to(page: Page, goal: Locator) -> None:
    """By the Tab key alone."""
    for _ in range(MOST_STOPS):
        await page.keyboard.press("Tab")
        if await goal.evaluate("each => each === document.activeElement"):
            return
    raise AssertionError(f"{MOST_STOPS} times Tab, and not there: {goal}")


@pytest.mark.smoke
async def test_a_wrong_key_is_refused_and_a_read_only_key_shows_no_actions(guarded: Served, visitors: Visitors):
    watched = Watched()
    page = await visitors.come(watched=watched, viewport=NARROW)
    await page.goto(f"{guarded.client.url}/#/runs")
    await expect(heading(page, "Sign in")).to_be_visible()
    await expect(page).to_have_title("Sign in · Tidegate")
    await sign_in(page, "a-key-that-nobody-gave-me")
    await expect(page.get_by_role("alert")).to_contain_text("Sign-in failed")
    assert await too_wide(page) == []
    assert await faults(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await faults(page, COLOURS) == []

    await page.set_viewport_size({"width": 1280, "height": 860})
    await sign_in(page, READ)
    await expect(heading(page, "Runs")).to_be_visible()  # the requested page
    await expect(page.get_by_text("Role: read")).to_be_visible()
    begin = page.get_by_role("button", name="Start a run")
    await expect(begin).to_have_attribute("aria-disabled", "true")
    await expect(begin).to_have_accessible_description(re.compile("Sign in with a key of the role “operate”"))
    await begin.click(force=True)
    await expect(page.get_by_role("status")).to_contain_text("Your key is read-only")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert await faults(page) == []

    await page.get_by_role("button", name="Log out").click()
    await expect(heading(page, "Sign in")).to_be_visible()
    await page.reload()
    await expect(heading(page, "Sign in")).to_be_visible()
    # A status that says that nobody is let in is told by the browser as well.
    assert [each for each in watched.complaints if "status of 401" not in each] == []


async def test_an_operator_can_act_and_other_pages_cannot_act_with_the_session(guarded: Served, visitors: Visitors):
    login = guarded.logins[0]
    page = await visitors.come(viewport={"width": 1280, "height": 860})
    await page.goto(f"{guarded.client.url}/#/runs")
    await sign_in(page, OPERATE)
    await page.get_by_role("button", name="Start a run").click()
    await page.get_by_role("dialog").get_by_role("textbox").first.fill(login)
    async with page.expect_request(lambda request: request.method == "POST") as asked:
        await page.get_by_role("dialog").get_by_role("button", name="Start", exact=True).click()
    await expect(heading(page, login)).to_be_visible()
    run = page.url.rpartition("/")[2]
    assert "authorization" not in (headers := await (await asked.value).all_headers())
    assert headers["x-tidegate-csrf"]
    cancel = "async path => (await fetch(path, {method: 'POST'})).status"
    assert await page.evaluate(cancel, f"/v1/runs/{run}/cancel") == 403  # with the cookie, and without the CSRF token
    assert (await guarded.client.get(f"/v1/runs/{run}")).json["status"] == "planning"
    assert (await guarded.client.post(f"/v1/runs/{run}/cancel")).status == 200


async def test_every_action_works_with_the_keyboard_alone(guarded: Served, visitors: Visitors):
    login = guarded.logins[1]
    page = await visitors.come(viewport={"width": 1280, "height": 860})
    keys = page.keyboard
    await page.clock.set_fixed_time(datetime.now(UTC))  # of two keys the second counts for a moment only
    await page.goto(guarded.client.url)
    await expect(page.get_by_label("API key")).to_be_focused()
    await keys.type(OPERATE)
    await keys.press("Enter")
    await expect(heading(page, "Overview")).to_be_visible()

    await page.reload()
    await expect(heading(page, "Overview")).to_be_visible()
    await keys.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await keys.press("Enter")
    await expect(page.get_by_role("main")).to_be_focused()
    for key, label in PLACES.items():
        await keys.press("g")
        await keys.press(key)
        await expect(heading(page, label)).to_be_focused()
    await keys.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await keys.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)

    await keys.press("g")
    await keys.press("r")
    await expect(heading(page, "Runs")).to_be_focused()
    await keys.press("/")
    await expect(page.locator("[data-filter]")).to_be_focused()
    await page.get_by_role("main").evaluate("each => each.focus()")
    await walk_to(page, page.get_by_role("button", name="Start a run"))
    await keys.press("Enter")
    await expect(page.get_by_role("dialog").get_by_role("textbox").first).to_be_focused()
    await keys.type(login)
    await walk_to(page, page.get_by_role("dialog").get_by_role("button", name="Start", exact=True))
    await keys.press("Enter")
    await expect(heading(page, login)).to_be_focused()

    cancel = page.get_by_role("main").get_by_role("button", name="Cancel run").first
    await walk_to(page, cancel)
    await keys.press("Enter")
    await expect(page.get_by_role("dialog").get_by_role("button", name="Not now")).to_be_focused()
    await keys.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(cancel).to_be_focused()
    await keys.press("Enter")
    await walk_to(page, page.get_by_role("dialog").get_by_role("button", name="Cancel run"))
    await keys.press("Enter")
    await expect(page.locator(".page-name .badge")).to_have_text("canceled")
    await expect(heading(page, login)).to_be_focused()  # the button is gone, and nobody is lost


async def test_the_page_shows_since_when_it_is_disconnected_and_reconnects(guarded: Served, visitors: Visitors):
    async with Proxy(urlsplit(guarded.client.url).port or 0) as wire:
        page = await visitors.come(viewport={"width": 1280, "height": 860})
        await page.goto(f"http://127.0.0.1:{wire.port}/")
        await sign_in(page, READ)
        live = page.get_by_role("main").locator(".live")
        await expect(live).to_have_text("Live")
        await wire.refuse()
        await expect(live).to_have_text(re.compile(r"^Not live since \d\d:\d\d:\d\d$"))
        await expect(page.get_by_role("list", name="Current figures")).to_contain_text("Active runs")
        await wire.listen()
        await expect(live).to_have_text("Live")
