"""The waiting page in a real browser: what people see, and what the page does on its own."""

import re
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.browser.chromium import PHONE, Visitors, Watched
from tests.systems.waiting_room.harness import ROOM, add_visitors
from tests.systems.waiting_room.room_site import COOKIE, TITLE, RoomSite
from tests.waiting import until
from tidegate.systems.waiting_room import Estimate
from tidegate.systems.waiting_room.api.pages.rendering import wait_text
from tidegate.systems.waiting_room.api.pages.routes import solve
from tidegate.systems.waiting_room.api.pages.texts import LANGUAGES, TEXTS

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENTRANCE = "/docs"
"""A page of the same server, which stands for the shop."""


async def join(page: Page, site: RoomSite, name: str = "Join the line") -> None:
    await page.goto(site.page_url)
    await page.get_by_role("button", name=name).click()


async def mark(page: Page) -> None:
    """So that a page which was loaded anew is known by the missing mark."""
    await page.evaluate("window.marked = true")


async def is_marked(page: Page) -> bool:
    return await page.evaluate("window.marked === true")


async def pass_of(page: Page) -> str:
    """What the browser would show at the door."""
    return next(each.get("value", "") for each in await page.context.cookies() if each.get("name") == COOKIE)


async def test_an_open_page_shows_that_the_line_is_paused_and_resumed(site: RoomSite, visitors: Visitors):
    room = await site.open(ahead=12, capacity=1)
    await site.keep_pace(room, every=timedelta(seconds=10), times=11)
    page = await visitors.come()
    await join(page, site)
    await expect(page.locator("#first")).to_be_visible()
    await expect(page.locator("#estimate")).to_have_text("Less than a minute")
    await mark(page)

    await site.harness.rooms.close(ROOM)

    await expect(page.locator("#paused")).to_be_visible()
    await expect(page.locator("#first")).to_be_hidden()
    await expect(page.locator("#estimate")).to_have_text("Paused")
    await expect(page.locator("#said")).to_contain_text("The line is paused at the moment.")
    await site.harness.rooms.open(ROOM)
    await expect(page.locator("#paused")).to_be_hidden()
    await expect(page.locator("#first")).to_be_visible()
    assert await is_marked(page)


async def test_the_page_solves_the_puzzle_of_a_room_without_user_action(site: RoomSite, visitors: Visitors):
    room = await site.open(puzzle_bits=14)
    watched = Watched()
    page = await visitors.come(watched=watched)

    await join(page, site)

    await expect(page.get_by_role("heading", name="You are in line")).to_be_visible(timeout=60_000)
    assert (await room.counts()).waiting == 1
    assert watched.complaints == []
    [script] = [address for address in watched.addresses if "/puzzle." in address]
    for bits, challenge in ((0, "a"), (1, "b"), (9, "0123456789abcdef0123456789abcdef"), (12, "f" * 32)):
        solved = "([script, ...given]) => import(script).then((puzzle) => puzzle.solve(...given))"
        assert await page.evaluate(solved, [script, challenge, bits]) == solve(challenge, bits)


@pytest.mark.smoke
async def test_a_visitor_joins_sees_the_place_change_and_is_sent_to_the_entrance(site: RoomSite, visitors: Visitors):
    room = await site.open(ahead=5, capacity=1, entrance=ENTRANCE)
    await site.keep_pace(room, every=timedelta(seconds=40), times=3)  # one is inside now, and another one waits
    watched = Watched()
    page = await visitors.come(watched=watched)

    await join(page, site)
    await expect(page.get_by_role("heading", name="You are in line")).to_be_visible()
    await expect(page.locator("#place")).to_have_text("2")
    await expect(page.locator("#estimate")).to_have_text(re.compile(r"About 1 to \d minutes|Up to \d minutes"))
    await expect(page.locator("#behind")).to_have_text("No one yet")
    await expect(page).to_have_title(f"2 in line · {TITLE}")
    await mark(page)

    site.harness.clock.advance(timedelta(seconds=70))  # more than half of the time of a pass
    await add_visitors(room, "late-1", "late-2")
    await site.move_up(room, "early-4")
    await expect(page.locator("#place")).to_have_text("1")
    await expect(page.locator("#first")).to_be_visible()
    await expect(page.locator("#behind")).to_have_text("2 people")
    await expect(page).to_have_title(f"1 in line · {TITLE}")
    await expect(page.locator("#said")).to_contain_text("Your place in line: 1.")
    await expect(page.get_by_role("progressbar", name="Progress from your first place to admission")).to_be_visible()
    assert await page.locator("#progress").evaluate("bar => bar.value") == pytest.approx(100 * 2 / 3)
    assert room.read(await pass_of(page)).until_ms == room.now_ms() + 120_000
    assert await is_marked(page)

    await site.amend(capacity=2)
    await page.wait_for_url(f"{site.url}{ENTRANCE}")
    assert (await room.check(await pass_of(page))).user.startswith("visitor-")
    assert watched.complaints == []
    assert {urlsplit(address).netloc for address in watched.addresses} == {urlsplit(site.url).netloc}


async def test_without_scripts_the_page_reloads_itself(site: RoomSite, visitors: Visitors):
    room = await site.open(ahead=1, entrance=ENTRANCE, abandon_after=timedelta(seconds=3))
    page = await visitors.come(java_script_enabled=False)

    await join(page, site)
    await expect(page.locator("#place")).to_have_text("2")
    await site.move_up(room, "early-0")
    await expect(page.locator("#place")).to_have_text("1")
    await site.amend(capacity=1)

    await page.wait_for_url(f"{site.url}{ENTRANCE}")


COUNT_NEWS = """
    window.newsHeard = 0;
    window.EventSource = class extends window.EventSource {
        constructor(...given) {
            super(...given);
            this.addEventListener("place", () => { window.newsHeard += 1; });
        }
    };
"""


async def seconds_left(page: Page) -> int:
    """What the page counts down from."""
    minutes, seconds = (await page.locator("#start").inner_text()).split(":")
    return int(minutes) * 60 + int(seconds)


async def counted_down_to(page: Page, seconds: int) -> bool:
    return await seconds_left(page) <= seconds


async def test_the_korean_page_works_from_the_draw_to_the_line(site: RoomSite, visitors: Visitors):
    """Everybody's place is known in the same moment: the page shows it without asking for anything."""
    room = await site.open(opens_in=timedelta(minutes=2), title="2026 겨울 콘서트")
    page = await visitors.come(locale="ko-KR", viewport=PHONE)
    await page.add_init_script(COUNT_NEWS)
    await page.clock.install()

    await join(page, site, "추첨 참여하기")
    await expect(page.locator("html")).to_have_attribute("lang", "ko")
    await expect(page.get_by_role("heading", name="추첨에 참여하셨습니다")).to_be_visible()
    # It has heard something before its time is turned forward: else it would give up waiting for its first news.
    await until(lambda: page.evaluate("window.newsHeard"))
    left_s = await seconds_left(page)
    await page.clock.fast_forward(6_000)
    await until(lambda: counted_down_to(page, left_s - 6))
    await page.get_by_text("추첨은 어떻게 공정하게 진행되나요?").click()
    await expect(page.get_by_text(room.room.commitment)).to_be_visible()
    await mark(page)

    await site.pass_time(timedelta(minutes=2))
    waits = page.get_by_role("heading", name="현재 대기 중입니다")
    await room.installer.install()  # the process looks at the room when it moves: our clock, which it waits by, jumped
    await expect(waits).to_be_visible()
    await expect(page.locator("#place")).to_have_text("1")
    await expect(page.locator("#first")).to_have_text("다음 차례입니다.")
    await expect(page).to_have_title("대기 1번 · 2026 겨울 콘서트")
    assert await is_marked(page)
    async with page.context.expect_page() as published:
        await page.get_by_role("link", name="공개된 값 확인하기").click()
    await expect((await published.value).locator("body")).to_contain_text(f'"seed":"{room.room.seed}"')


async def test_the_page_reconnects_after_a_server_outage(site: RoomSite, visitors: Visitors):
    room = await site.open(ahead=2)
    page = await visitors.come()
    await page.clock.install()
    await join(page, site)
    await expect(page.locator("#place")).to_have_text("3")
    await mark(page)

    await site.stop()
    await page.clock.fast_forward(4_000)
    await expect(page.locator("#lost")).to_be_visible()
    await expect(page.locator("#place")).to_have_text("3")
    await site.move_up(room, "early-0")
    await site.start()
    await page.clock.fast_forward(8_000)

    await expect(page.locator("#place")).to_have_text("2")
    await expect(page.locator("#lost")).to_be_hidden()
    await site.move_up(room, "early-1")
    await expect(page.locator("#place")).to_have_text("1")
    assert await is_marked(page)


async def test_a_page_without_events_falls_back_to_requests(site: RoomSite, visitors: Visitors):
    room = await site.open(ahead=1)
    page = await visitors.come()
    await page.clock.install()
    await page.route("**/place/events", lambda route: route.abort())
    await join(page, site)
    await expect(page.locator("#place")).to_have_text("2")
    await site.move_up(room, "early-0")

    await page.clock.fast_forward(4_000)

    await expect(page.locator("#place")).to_have_text("1")
    await expect(page.locator("#lost")).to_be_hidden()


async def test_hiding_the_page_sends_a_heartbeat_and_stores_the_newest_pass(site: RoomSite, visitors: Visitors):
    """It may be the last sign of life: the place is kept from this time on."""
    room = await site.open(capacity=0)
    page = await visitors.come()
    await join(page, site)
    await expect(page.locator("#place")).to_have_text("1")
    site.harness.clock.advance(timedelta(seconds=50))

    async with page.expect_response(lambda answer: answer.request.method == "HEAD"):
        await page.evaluate("Object.defineProperty(document, 'hidden', {value: true})")
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    await site.pass_time(timedelta(seconds=119))
    assert (await room.status(await pass_of(page))).waiting == 1


async def test_a_visitor_can_join_and_leave_with_the_keyboard_alone(site: RoomSite, visitors: Visitors):
    room = await site.open(ahead=1)
    page = await visitors.come()

    async def tab_to(text: str) -> None:
        for _ in range(12):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.textContent.trim()") == text:
                assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                return
        raise AssertionError(f"{text!r} cannot be reached")

    await page.goto(site.page_url)
    await tab_to("Join the line")
    await page.keyboard.press("Enter")
    await expect(page.locator("#place")).to_have_text("2")
    await tab_to("Leave the line")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("You will lose your place.")).to_be_visible()
    await tab_to("Leave and give up my place")
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("heading", name="You have left")).to_be_visible()
    assert (await room.counts()).waiting == 1


async def test_a_page_without_live_updates_reloads_its_state(site: RoomSite, visitors: Visitors):
    await site.create()
    page = await visitors.come()
    await page.clock.install()
    await page.goto(site.page_url)
    await expect(page.get_by_role("heading", name="The line is closed")).to_be_visible()
    await site.harness.rooms.open(ROOM, site.harness.clock.now() + timedelta(minutes=5))

    await page.clock.fast_forward(30_000)
    await expect(page.get_by_role("heading", name="Starting soon")).to_be_visible()
    await site.pass_time(timedelta(minutes=5))
    await page.clock.fast_forward(300_000)  # the countdown ends
    await page.clock.fast_forward(2_000)

    await expect(page.get_by_role("heading", name="Join the line")).to_be_visible()


async def test_the_script_formats_waiting_times_like_the_server(site: RoomSite, visitors: Visitors):
    await site.open()
    page = await visitors.come()
    await page.goto(site.page_url)
    lengths = [0, 1, 59, 60, 61, 150, 300, 1199, 1200, 1201, 1500, 5399, 5400, 5401, 9000, 43_200, 43_201, 90_000]
    pairs = [(soonest, latest) for latest in lengths for soonest in lengths if soonest <= latest]

    for language in LANGUAGES:
        told = await page.evaluate(
            """async ([texts, language, pairs]) => {
                const {wait} = await import(document.querySelector("script[type=module]").src);
                return pairs.map(([soonest_s, latest_s]) => wait(texts, language, {soonest_s, latest_s}));
            }""",
            [TEXTS[language], language, pairs],
        )
        expected = [wait_text(language, Estimate(timedelta(seconds=a), timedelta(seconds=b))) for a, b in pairs]
        assert told == expected


async def test_a_visitor_who_is_admitted_while_joining_reaches_a_shop_on_another_host(
    site: RoomSite, visitors: Visitors
):
    """A browser holds what follows a form to the policy of the page with the form."""
    entrance = f"http://localhost:{urlsplit(site.url).port}{ENTRANCE}"
    room = await site.open(capacity=1, entrance=entrance)
    await add_visitors(room, "ada")
    await site.harness.run_worker()
    token = (await room.join("ada")).token or ""
    page = await visitors.come()
    await page.goto(site.page_url)
    await page.context.add_cookies([{"name": COOKIE, "value": token, "url": site.url}])

    await page.get_by_role("button", name="Join the line").click()

    await page.wait_for_url(entrance)
