"""The waiting page as a browser without scripts sees it: states, cookies, forms, and what it refuses."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from datetime import timedelta
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from multidict import CIMultiDictProxy
from pydantic import SecretStr
from yarl import URL

from tests.http.serving import Client, Reply
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer, connected
from tests.systems.waiting_room.harness import ROOM, add_visitors, inside
from tests.systems.waiting_room.room_site import COOKIE, START, TITLE, RoomSite, room_site_at
from tests.waiting import stopwatch
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room.api.pages.routes import solve

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture
async def site(tmp_path: Path, embedded: Valkey) -> AsyncGenerator[RoomSite]:
    async with room_site_at(tmp_path, embedded) as served:
        yield served


@pytest.fixture
async def visitor(site: RoomSite) -> AsyncGenerator[Client]:
    """A browser: it keeps cookies."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield Client(session, site.url)


async def press(visitor: Client, path: str, do: str, **headers: str) -> Reply:
    """One of the buttons."""
    return await visitor.ask("POST", path, data=urlencode({"do": do}), headers={**FORM, **headers})


async def see(visitor: Client, path: str, **headers: str) -> str:
    """The page, which must be there."""
    answer = await visitor.get(path, headers=headers)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8"), answer
    return answer.body.decode()


def state_of(html: str) -> str:
    found = re.search(r'<main id="main" data-state="(\w+)">', html)
    assert found, html
    return found[1]


def kept(visitor: Client) -> dict[str, str]:
    """What the browser keeps of its place."""
    found = visitor.session.cookie_jar.filter_cookies(URL(visitor.url) / "rooms/x")
    return {name: each.value for name, each in found.items() if not name.startswith("tidegate_visitor_")}


def refresh(html: str) -> int | None:
    """After how many seconds a browser without scripts asks again."""
    found = re.search(r'<noscript><meta http-equiv="refresh" content="(\d+)"></noscript>', html)
    return int(found[1]) if found else None


async def test_a_visitor_joins_waits_and_is_sent_to_the_entrance(site: RoomSite, visitor: Client):
    room = await site.open(ahead=3, capacity=0, entrance="/shop/seats")

    html = await see(visitor, site.path)
    assert (state_of(html), refresh(html), kept(visitor)) == ("join", None, {})
    assert "3 people are waiting." in html

    joined = await press(visitor, site.path, "join")
    assert (joined.status, joined.headers["location"]) == (303, f"./{ROOM}")
    html = await see(visitor, site.path)
    assert (state_of(html), refresh(html)) == ("waiting", 5)
    assert 'id="place">4<' in html
    assert kept(visitor)[START] == "4"

    await site.move_up(room, "early-0", "early-1")
    html = await see(visitor, site.path)
    assert 'id="place">2<' in html
    assert '<progress id="progress" max="100" value="60.0"' in html

    await site.amend(capacity=9)
    answer = await visitor.get(site.path)
    assert (answer.status, answer.headers["location"]) == (303, "/shop/seats")
    checked = await room.check(kept(visitor)[COOKIE])
    assert re.fullmatch(r"visitor-[0-9a-f]{32}", checked.user)


async def test_before_the_start_there_is_no_position_and_the_draw_is_committed(site: RoomSite, visitor: Client):
    room = await site.open(opens_in=timedelta(minutes=4))

    html = await see(visitor, site.path)
    assert (state_of(html), "Starting soon" in html, room.room.commitment in html) == ("join", True, True)
    await press(visitor, site.path, "join")
    html = await see(visitor, site.path)

    assert (state_of(html), refresh(html)) == ("drawing", 30)
    assert room.room.commitment in html
    assert room.room.seed not in html
    assert 'id="place"><' in html
    await site.pass_time(timedelta(minutes=3, seconds=50))
    # Signs of life are given by the refreshes that a browser makes; this one was away too long.
    assert state_of(await see(visitor, site.path)) == "lapsed"
    await press(visitor, site.path, "join")
    assert refresh(await see(visitor, site.path)) == 11
    await site.pass_time(timedelta(seconds=10))
    html = await see(visitor, site.path)
    assert (state_of(html), room.room.commitment in html) == ("waiting", True)


async def test_without_an_entrance_url_the_page_shows_the_session_time_and_a_leave_button(
    site: RoomSite, visitor: Client
):
    room = await site.open(capacity=1, session=timedelta(minutes=7))
    await press(visitor, site.path, "join")
    await site.harness.run_worker()

    html = await see(visitor, site.path)
    assert (state_of(html), "7 minutes" in html) == ("inside", True)
    left = await press(visitor, site.path, "leave")

    assert (left.status, left.headers["location"], kept(visitor)) == (303, f"./{ROOM}?left=1", {})
    assert (await room.counts()).active == 0
    html = await see(visitor, f"{site.path}?left=1")
    assert (state_of(html), 'value="join"' in html) == ("left", True)


async def test_an_expired_session_and_an_expired_place_have_different_pages(site: RoomSite, visitor: Client):
    await site.open(capacity=1)
    await press(visitor, site.path, "join")
    await site.harness.run_worker()
    await see(visitor, site.path)
    await site.pass_time(timedelta(minutes=11))
    assert state_of(await see(visitor, site.path)) == "over"
    await site.pass_time(timedelta(minutes=20))
    assert state_of(await see(visitor, site.path)) == "over"  # also when the pass itself is too old

    await site.amend(capacity=0)
    await press(visitor, site.path, "join")
    assert state_of(await see(visitor, site.path)) == "waiting"
    await site.pass_time(timedelta(minutes=3))
    html = await see(visitor, site.path)
    assert (state_of(html), "more than 2 minutes" in html, 'value="join"' in html) == ("lapsed", True, True)


async def test_a_closed_room_accepts_no_visitor_and_keeps_the_waiting_ones(site: RoomSite, visitor: Client):
    await site.open()
    await press(visitor, site.path, "join")
    await site.harness.rooms.close(ROOM)

    html = await see(visitor, site.path)
    assert (state_of(html), "The line is paused" in html) == ("waiting", True)
    visitor.session.cookie_jar.clear()
    html = await see(visitor, site.path)
    assert (state_of(html), refresh(html), 'value="join"' in html) == ("closed", 30, False)
    assert (await press(visitor, site.path, "join")).status == 303
    assert kept(visitor) == {}


@pytest.mark.parametrize("how", ["closed", "no capacity"])
async def test_the_page_of_a_paused_line_shows_no_estimate(how: str, site: RoomSite, visitor: Client):
    room = await site.open(ahead=12, capacity=1)
    await site.keep_pace(room, every=timedelta(seconds=10), times=11)  # a pace is known, and one is inside
    await press(visitor, site.path, "join")
    html = await see(visitor, site.path)
    assert (_is_visible(html, "first"), _is_visible(html, "paused")) == (True, False)
    assert 'id="estimate">Less than a minute<' in html
    if how == "closed":
        await site.harness.rooms.close(ROOM)
    else:
        await site.amend(capacity=0)

    html = await see(visitor, site.path)
    place = (await visitor.get(f"/v1/rooms/{ROOM}/place")).json

    assert (state_of(html), _is_visible(html, "first"), _is_visible(html, "paused")) == ("waiting", False, True)
    assert 'id="estimate">Paused<' in html
    assert (place["is_paused"], place["estimate"], place["position"]) == (True, None, 1)


async def test_a_line_that_cannot_be_joined_has_no_join_button(site: RoomSite, visitor: Client):
    room = await site.open(capacity=1)
    await press(visitor, site.path, "join")
    await site.harness.run_worker()
    await see(visitor, site.path)
    await site.pass_time(timedelta(minutes=11))
    await site.amend(capacity=0)
    (waiting,) = await add_visitors(room, "ada")
    assert 'value="join"' in await see(visitor, site.path)
    await site.harness.rooms.close(ROOM)
    closed, shop = "The line is closed. Joining is not possible right now.", "return to the site that sent you here"

    for path in (site.path, f"{site.path}?left=1"):
        html = await see(visitor, path)
        assert (state_of(html) in ("over", "left"), closed in html, shop in html) == (True, True, False)
        assert 'value="join"' not in html
    visitor.session.cookie_jar.clear()
    await site.harness.rooms.open(ROOM)
    await site.amend(anonymous=False)
    html = await see(visitor, f"{site.path}?left=1")
    assert (closed in html, shop in html, 'value="join"' in html) == (False, True, False)

    # The server lost the line while the room was closed: the pass is good, and the place comes back with the opening.
    await site.harness.rooms.close(ROOM)
    await site.harness.valkey.execute("FLUSHALL")
    await visitor.get(f"{site.path}?pass={waiting}")
    assert state_of(await see(visitor, site.path)) == "closed"
    await site.harness.rooms.open(ROOM)
    assert state_of(await see(visitor, site.path)) == "waiting"


def _is_visible(html: str, part: str) -> bool:
    """Whether an element of the page is shown."""
    found = re.search(rf'<p class="\w+" id="{part}"( hidden)?>', html)
    assert found, html
    return found[1] is None


async def test_a_restricted_room_can_be_joined_only_from_the_shop(site: RoomSite, visitor: Client):
    room = await site.open(anonymous=False, entrance="https://shop.example/")

    html = await see(visitor, site.path)
    assert (state_of(html), 'href="https://shop.example/"' in html) == ("uninvited", True)
    await press(visitor, site.path, "join")
    assert ((await room.counts()).waiting, kept(visitor)) == (0, {})

    (token,) = await add_visitors(room, "ada")
    brought = await visitor.get(f"{site.path}?pass={token}&lang=ko")
    assert (brought.status, brought.headers["location"]) == (303, f"./{ROOM}?lang=ko")
    assert state_of(await see(visitor, site.path)) == "waiting"
    assert room.read(kept(visitor)[COOKIE]).user == "ada"


async def test_a_foreign_pass_in_the_url_has_no_effect(site: RoomSite, visitor: Client):
    await site.open()
    await press(visitor, site.path, "join")
    before = kept(visitor)[COOKIE]

    for token in ("", "nonsense", "a.b", "x" * 5000, before[:-1]):
        answer = await visitor.get(f"{site.path}?pass={token}")
        assert (answer.status, answer.headers["location"]) == (303, f"./{ROOM}")
        assert kept(visitor)[COOKIE] == before


async def test_a_visitor_lost_by_the_server_gets_the_old_place_again(site: RoomSite, visitor: Client):
    room = await site.open(ahead=3)
    await press(visitor, site.path, "join")
    before = room.read(kept(visitor)[COOKIE])
    await site.harness.valkey.execute("FLUSHALL")

    # The last sign of life of a page that is closed is no wish to come back.
    assert (await visitor.ask("HEAD", site.path)).status == 200
    assert (await room.counts()).waiting == 0
    assert state_of(await see(visitor, site.path)) == "waiting"
    await add_visitors(room, "late")
    after = room.read(kept(visitor)[COOKIE])

    assert (after.user, after.place) == (before.user, before.place)
    assert 'id="place">1<' in await see(visitor, site.path)


async def test_one_address_brings_a_limited_number_of_visitors_at_a_limited_rate(site: RoomSite):
    """None of them keeps cookies; 30 come at once, each from another address by its own account, to two processes."""
    room = await site.open()

    async def add_visitors(numbers: range) -> list[Reply]:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            crowd = Client(session, site.url)
            here = f"{site.path}?lang=en"
            joins = (press(crowd, here, "join", **{"X-Forwarded-For": f"198.51.100.{n}"}) for n in numbers)
            return await asyncio.gather(*joins)

    replies = await add_visitors(range(15))
    await site.stop()
    await site.start()
    replies += await add_visitors(range(15, 30))
    async with aiohttp.ClientSession() as session:
        brought = await Client(session, site.url).post(f"/v1/rooms/{ROOM}/entries", {"user": "ada"})

    assert sorted(reply.status for reply in replies) == [303] * 20 + [429] * 10
    refused = next(reply for reply in replies if reply.status == 429)
    assert 1 <= int(refused.headers["retry-after"]) <= 5
    assert (state_of(refused.body.decode()), "Many visitors are joining" in refused.body.decode()) == (
        "throttled",
        True,
    )
    assert brought.status == 200, "a user that the shop brings is not counted"
    assert (await room.counts()).waiting == 21


async def test_one_browser_has_one_place_however_often_it_joins_and_leaves(site: RoomSite, visitor: Client):
    room = await site.open(opens_in=timedelta(minutes=4))
    lots: set[tuple[str, int | None]] = set()
    for _ in range(3):
        await see(visitor, site.path)
        await press(visitor, site.path, "join")
        shown = room.read(kept(visitor)[COOKIE])
        lots.add((shown.user, shown.place))
        await press(visitor, site.path, "leave")
    await press(visitor, site.path, "join")
    visitor.session.cookie_jar.clear(lambda cookie: cookie.key == COOKIE)  # it lost its pass
    await press(visitor, site.path, "join")

    assert len(lots) == 1, "a browser that leaves and comes again draws no second lot"
    assert (await room.counts()).waiting == 1


async def test_a_room_with_a_puzzle_gives_one_place_per_solution(site: RoomSite, visitor: Client):
    room = await site.open(puzzle_bits=10)

    async def join(challenge: str | None, solution: str) -> int:
        found = re.search(r'"challenge": "([0-9a-f]{32})"', await see(visitor, site.path))
        assert found
        proof = solution or solve(challenge or found[1], 10)
        form = urlencode({"do": "join", "proof": proof})
        assert (await visitor.ask("POST", site.path, data=form, headers=FORM)).status == 303
        return (await room.counts()).waiting

    assert (await press(visitor, site.path, "join")).status == 303
    assert await join(None, "wrong") == 0
    assert await join("0" * 32, "") == 0, "it was solved for another visitor"
    assert await join(None, "") == 1
    assert state_of(await see(visitor, site.path)) == "waiting"
    assert (await visitor.post(f"/v1/rooms/{ROOM}/entries", {"user": "ada"})).status == 200


async def test_joining_twice_keeps_the_place(site: RoomSite, visitor: Client):
    room = await site.open()
    await press(visitor, site.path, "join")
    await add_visitors(room, "late")

    await press(visitor, site.path, "join")

    assert 'id="place">1<' in await see(visitor, site.path)
    assert (await room.counts()).waiting == 2


async def test_a_form_of_another_site_is_refused_and_the_own_form_accepted(site: RoomSite, visitor: Client):
    room = await site.open()
    await press(visitor, site.path, "join")

    for foreign in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = await press(visitor, site.path, "leave", **foreign)
        assert (answer.status, answer.problem) == (403, "foreign-origin")
        assert (await room.counts()).waiting == 1

    ours = {"origin": site.url, "sec-fetch-site": "same-origin"}
    assert (await press(visitor, site.path, "leave", **ours)).status == 303
    assert (await room.counts()).waiting == 0


async def test_an_unknown_action_is_refused(site: RoomSite, visitor: Client):
    room = await site.open()
    form = FORM["content-type"]

    for body, media, problem in (
        ("do=join", "text/plain", "not-a-form"),
        ('{"do":"join"}', "application/json", "not-a-form"),
        ("do=join", "multipart/form-data; boundary=x", "not-a-form"),
        ("do=join", "", "not-a-form"),
        ("do=dance", form, "invalid"),
        ("do=join&do=leave", form, "invalid"),
        ("do=join&x=1", form, "invalid"),
        ("", form, "invalid"),
        ("%ff%fe", form, "invalid"),
        ("&".join(f"a{n}=1" for n in range(50)), form, "invalid"),
        ("do=" + "x" * 5000, form, "too-large"),
    ):
        answer = await visitor.ask("POST", site.path, data=body.encode(), headers={"content-type": media})
        assert answer.problem == problem, body
    assert (await room.counts()).waiting == 0
    elsewhere = await visitor.ask("POST", "/v1/rooms", data="name=x", headers=FORM)
    assert (elsewhere.status, elsewhere.problem) == (415, "not-json")


async def test_the_page_needs_no_key_where_other_routes_do(tmp_path: Path, embedded: Valkey):
    http = HttpSettings(api_key=SecretStr("k" * 32))
    async with room_site_at(tmp_path, embedded, http) as site, aiohttp.ClientSession() as session:
        await site.open()
        visitor = Client(session, site.url)
        html = await see(visitor, site.path, host="tickets.example.com")
        style = re.search(r'href="(assets/waiting\.\w+\.css)"', html)
        assert style
        assert (await visitor.get(f"/rooms/{style[1]}")).status == 200
        assert (await press(visitor, site.path, "join")).status == 303
        for path in ("/rooms", "/rooms/", f"{site.path}/", "/v1/rooms", f"/v1/rooms/{ROOM}"):
            assert (await visitor.get(path)).problem == "key-needed", path


async def test_the_content_security_policy_is_in_the_headers(site: RoomSite, visitor: Client):
    await site.open()

    answer = await visitor.get(site.path)

    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["vary"] == "Accept-Language, Cookie"
    assert not re.search(r"\sstyle=|\son\w+=|<style|https?://", answer.body.decode())


@pytest.mark.parametrize(
    ("entrance", "allowed"),
    [
        ("/seats", "'self'"),
        ("https://shop.example:8443/a;b?c='d'", "'self' https://shop.example:8443"),
        ("https://shop.example;img-src/", "'self'"),
        ("http://[::1]/", "'self'"),
    ],
)
async def test_a_form_may_redirect_only_to_the_shop(site: RoomSite, visitor: Client, entrance: str, allowed: str):
    await site.open(entrance=entrance)

    policy = (await visitor.get(site.path)).headers["content-security-policy"]

    assert [each for each in policy.split("; ") if each.startswith("form-action ")] == [f"form-action {allowed}"]
    assert policy.count(";") == 7


async def test_cookies_are_limited_to_this_site_and_secure_behind_tls(site: RoomSite, visitor: Client):
    await site.open()

    for headers, is_secure in (({}, False), ({"x-forwarded-proto": "https"}, True)):
        answer = await press(visitor, site.path, "join", **headers)
        cookie = SimpleCookie(next(each for each in _set_cookies(answer) if each.startswith(COOKIE)))[COOKIE]
        assert (cookie["path"], cookie["samesite"], cookie["httponly"]) == ("/", "lax", "")
        assert bool(cookie["secure"]) is is_secure
        assert int(cookie["max-age"]) == 30 * 60 + 3600


async def test_titles_are_escaped(site: RoomSite, visitor: Client):
    await site.open(title="</script><script>alert('1')</script> & \"more\"")
    await press(visitor, site.path, "join")

    html = await see(visitor, site.path)

    assert "<script>alert" not in html
    assert "&lt;/script&gt;&lt;script&gt;alert(&#39;1&#39;)" in html
    assert html.count("</script>") == 2


async def test_the_page_uses_the_language_of_the_browser_or_the_chosen_one(site: RoomSite, visitor: Client):
    await site.open(ahead=2, title="")

    korean = await see(visitor, site.path, **{"accept-language": "ko-KR,ko;q=0.9"})
    chosen = await see(visitor, f"{site.path}?lang=en", **{"accept-language": "ko-KR,ko;q=0.9"})

    assert '<html lang="ko">' in korean
    assert "현재 2명이 대기 중입니다." in korean
    assert f"<title>대기열 참여 · {ROOM}</title>" in korean
    assert '<html lang="en">' in chosen
    # A link may have anything hung on it.
    assert state_of(await see(visitor, f"{site.path}?utm_source=mail&utm_source=x&fbclid=1&lang=xx")) == "join"
    assert (await press(visitor, f"{site.path}?lang=ko", "join")).headers["location"] == f"./{ROOM}?lang=ko"


async def test_an_unknown_room_has_its_own_page(site: RoomSite, visitor: Client):
    for name in ("nothing", "%00", "a%20b", "%3Cb%3E", "x" * 300, "%EB%B0%A9"):
        answer = await visitor.get(f"/rooms/{name}")
        assert (answer.status, state_of(answer.body.decode())) == (404, "absent")
        assert b"<b>" not in answer.body
    assert (await press(visitor, "/rooms/nothing", "join")).status == 303
    document = (await visitor.get("/openapi.json")).json  # which is for machines, and knows no pages
    assert [path for path in document["paths"] if path.startswith("/rooms")] == []


async def test_during_a_server_outage_the_page_says_that_places_are_kept(tmp_path: Path):
    [port] = free_ports(1)
    async with AsyncExitStack() as stack:
        stack.enter_context(ValkeyServer(port=port))
        wire = await stack.enter_async_context(Proxy(port))
        valkey = await stack.enter_async_context(connected(f"redis://127.0.0.1:{wire.port}"))
        site = await stack.enter_async_context(room_site_at(tmp_path, valkey))
        session = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)))
        visitor = Client(session, site.url)
        room = await site.open(capacity=1, entrance="/shop")
        await add_visitors(room, "bob")
        await site.harness.run_worker()
        (token,) = await add_visitors(room, "ada")
        of_bob = (await room.join("bob")).token
        session.cookie_jar.update_cookies({COOKIE: token}, URL(site.url))
        await wire.refuse()

        answer = await visitor.get(site.path)
        pressed = await press(visitor, site.path, "leave")

        for each in (answer, pressed):
            assert (each.status, state_of(each.body.decode())) == (503, "unavailable")
            assert each.headers["retry-after"] == "5"
            assert (refresh(each.body.decode()), TITLE in each.body.decode()) == (5, True)
        session.cookie_jar.update_cookies({COOKIE: of_bob or ""}, URL(site.url))
        entering = await visitor.get(site.path)  # SQL knows that the visitor is inside
        assert (entering.status, entering.headers["location"]) == (303, "/shop")
        # A visitor that the shop adds now keeps the pass, and it does not stay in the address.
        brought = await visitor.get(f"{site.path}?pass={token}")
        assert (brought.status, brought.headers["location"]) == (303, f"./{ROOM}")
        assert kept(visitor)[COOKIE] == token
        await wire.listen()
        assert (await inside(room, "ada"), (await room.counts()).waiting) == ([], 1)


async def test_a_file_is_cached_forever_under_the_digest_of_its_content(site: RoomSite, visitor: Client):
    await site.open()
    html = await see(visitor, site.path)

    files = re.findall(r'"(assets/[^"]+)"', html)

    assert [re.sub(r"\.[0-9a-f]{16}\.", ".", file) for file in files] == [
        "assets/icon.svg",
        "assets/waiting.css",
        "assets/puzzle.js",
        "assets/waiting.js",
    ]
    for file in files:
        answer = await visitor.get(f"/rooms/{file}")
        assert (answer.status, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert (await visitor.get("/rooms/assets/waiting.css")).status == 404
    assert (await visitor.get("/rooms/assets/..%2fdesk.py")).status == 404


async def test_a_request_costs_one_read(site: RoomSite, visitor: Client):
    """However many come: the pace of the line is measured once a second, and nothing else is asked."""
    await site.open()
    await press(visitor, site.path, "join")
    await see(visitor, site.path)
    before, elapsed_s = await _commands(site.harness.valkey), stopwatch()

    for _ in range(5):
        await see(visitor, site.path)

    after = await _commands(site.harness.valkey)
    assert 5 <= after["evalsha"] - before["evalsha"] <= 6 + elapsed_s()


def _set_cookies(answer: Reply) -> list[str]:
    assert isinstance(answer.headers, CIMultiDictProxy)
    return answer.headers.getall("set-cookie")


async def _commands(valkey: Valkey) -> dict[str, int]:
    """How often each was given to the server so far."""
    told: Any = await valkey.execute("INFO", "commandstats")
    return {name.removeprefix("cmdstat_"): figures["calls"] for name, figures in told.items()}
