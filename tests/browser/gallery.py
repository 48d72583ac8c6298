"""Every state of the waiting page, one after the other, in one room; and pictures of them.

    python -m tests.browser.gallery FOLDER

paints each for a phone and a desktop, in light and in dark, in every language. Those in the guide are among them.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.async_api import Browser

from tests.browser.chromium import DESKTOP, PHONE, Visitors, chromium
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer, connected
from tests.systems.waiting_room.harness import ROOM, SETTLE_AFTER, add_visitors
from tests.systems.waiting_room.room_site import COOKIE, START, RoomSite, early, room_site_at
from tidegate.systems.waiting_room import WaitingRoom
from tidegate.systems.waiting_room.api.pages.texts import LANGUAGES

_BEHIND = 25
Cookies = dict[str, str]


@asynccontextmanager
async def wired_site(folder: Path) -> AsyncGenerator[tuple[RoomSite, Proxy]]:
    """A site whose wire to the server of the line can be cut."""
    [port] = free_ports(1)
    async with AsyncExitStack() as stack:
        stack.enter_context(ValkeyServer(port=port))
        wire = await stack.enter_async_context(Proxy(port))
        valkey = await stack.enter_async_context(connected(f"redis://127.0.0.1:{wire.port}"))
        yield await stack.enter_async_context(room_site_at(folder, valkey)), wire


async def page_states(site: RoomSite, wire: Proxy) -> AsyncGenerator[tuple[str, Cookies]]:
    """Each state by its name, with what a browser keeps that is to see it; it stays until the next is asked for."""
    yield "absent", {}
    room = await site.create(capacity=1, session=timedelta(minutes=5), abandon_after=timedelta(minutes=10))
    yield "closed", {}
    await site.harness.rooms.open(ROOM, site.harness.clock.now() + timedelta(minutes=4, seconds=32))
    yield "join", {}
    yield "drawing", await _kept(room, "eve")

    await site.pass_time(timedelta(minutes=4, seconds=32))
    await site.move_up(room, "eve")
    await add_visitors(room, *early(30), "ada", *[f"late-{n}" for n in range(_BEHIND)])
    yield "join", {}
    await site.keep_pace(room, every=timedelta(seconds=11), times=12)
    yield "waiting", {**await _kept(room, "ada"), START: "31"}
    await site.harness.rooms.close(ROOM)
    yield "waiting", await _kept(room, "ada")

    await site.harness.rooms.open(ROOM)
    await site.move_up(room, *early(30)[13:])
    await site.move_up(room, "early-12")
    await room.admitter.take()
    yield "entering", await _kept(room, "ada")
    await site.pass_time(SETTLE_AFTER)
    kept = await _kept(room, "ada")
    yield "inside", kept
    await site.pass_time(timedelta(minutes=6))
    yield "over", kept
    kept = await _kept(room, "late-20")
    await site.pass_time(timedelta(minutes=11))
    yield "lapsed", kept
    yield "left", {}
    await site.amend(anonymous=False, entrance="/docs")
    yield "uninvited", {}
    await wire.refuse()
    yield "unavailable", {}
    await wire.listen()


def address(site: RoomSite, state: str, language: str) -> str:
    """Where the state is seen."""
    path = "/rooms/nothing" if state == "absent" else site.path
    return f"{site.url}{path}?lang={language}{'&left=1' if state == 'left' else ''}"


def as_kept(site: RoomSite, cookies: Cookies) -> list[Any]:
    """As a browser is given them."""
    return [{"name": name, "value": value, "url": f"{site.url}/rooms/"} for name, value in cookies.items()]


async def _kept(room: WaitingRoom, user: str) -> Cookies:
    return {COOKIE: (await room.join(user)).token or ""}


async def paint(folder: Path, browser: Browser) -> None:
    """All pictures."""
    looks = [
        (view, scheme, lang) for view in ("phone", "desktop") for scheme in ("light", "dark") for lang in LANGUAGES
    ]
    visitors = Visitors(browser)
    with tempfile.TemporaryDirectory() as data:
        async with wired_site(Path(data)) as (site, wire):
            number = 0
            async for state, cookies in page_states(site, wire):
                number += 1
                for view, scheme, language in looks:
                    viewport = PHONE if view == "phone" else DESKTOP
                    page = await visitors.come(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
                    await page.context.add_cookies(as_kept(site, cookies))
                    await page.goto(address(site, state, language))
                    name = f"{number:02}-{state}-{view}-{scheme}-{language}.png"
                    await page.screenshot(path=folder / name, full_page=True)
                    await visitors.go()


async def main(folder: Path) -> None:
    """Paint them into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        await paint(folder, browser)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
