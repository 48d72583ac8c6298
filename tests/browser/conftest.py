"""One browser for each test process; a site, and visitors, for each test."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser.chromium import Visitors, chromium
from tests.servers.valkey import empty_valkey
from tests.systems.waiting_room.room_site import RoomSite, room_site_at
from tests.waiting import PATIENCE_S

expect.set_options(timeout=1000 * PATIENCE_S)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncGenerator[Browser]:
    """The Chromium of this machine."""
    async with chromium() as launched:
        yield launched


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path, embedded_url: str) -> AsyncGenerator[RoomSite]:
    """A room's page, served; the room is yet to be made."""
    async with empty_valkey(embedded_url) as valkey, room_site_at(tmp_path, valkey) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def visitors(browser: Browser) -> AsyncGenerator[Visitors]:
    """Whoever comes is gone at the end."""
    came = Visitors(browser)
    yield came
    await came.go()
