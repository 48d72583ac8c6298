"""A waiting room with its page and its addresses, served.

The clock of the room stands still until a test moves it, and nobody is let in before a test lets the keeper work: what
the page shows is known, and nothing has to be waited for but the page.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.servers.migrated import migrated_file
from tests.systems.waiting_room.harness import ROOM, RoomHarness, add_visitors, harness_at
from tidegate.core.clock import ManualClock
from tidegate.http import Binding
from tidegate.http.application import build_application
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import RoomPlan, WaitingRoom
from tidegate.systems.waiting_room.api.routes import room_api

TITLE = "Winter Concert 2026"
COOKIE, START = f"tidegate_pass_{ROOM}", f"tidegate_start_{ROOM}"


class RoomSite:
    """One installation with one room."""

    def __init__(self, harness: RoomHarness, binding: Binding, settings: HttpSettings) -> None:
        self.harness, self._binding, self._settings = harness, binding, settings
        self._serving: tuple[asyncio.Event, asyncio.Task[None]] | None = None

    @property
    def url(self) -> str:
        return self._binding.url

    @property
    def path(self) -> str:
        """Of the page."""
        return f"/rooms/{ROOM}"

    @property
    def page_url(self) -> str:
        return self.url + self.path

    async def create(self, **plan: Any) -> WaitingRoom:
        """A room that is closed, and holds nobody."""
        values: dict[str, Any] = {"capacity": 0, "title": TITLE, "anonymous": True, **plan}
        return await self.harness.rooms.create(ROOM, RoomPlan(**values))

    async def open(self, ahead: int = 0, *, opens_in: timedelta | None = None, **plan: Any) -> WaitingRoom:
        """A room that is open, or will be, with so many in line."""
        await self.create(**plan)
        room = await self.harness.rooms.open(ROOM, None if opens_in is None else self.harness.clock.now() + opens_in)
        await self.harness.run_worker()
        await add_visitors(room, *early(ahead))
        return room

    async def move_up(self, room: WaitingRoom, *users: str) -> None:
        """These leave, and the line moves."""
        for user in users:
            await room.leave((await room.join(user)).token or "")

    async def amend(self, **plan: Any) -> None:
        """Change the room, and let in whoever may come in now."""
        await self.harness.rooms.change_plan(ROOM, plan)
        await self.harness.run_worker()

    async def pass_time(self, span: timedelta) -> None:
        """Let the clock go on, and the keeper do what is due then."""
        self.harness.clock.advance(span)
        await self.harness.run_worker()

    async def keep_pace(self, room: WaitingRoom, *, every: timedelta, times: int) -> None:
        """Let those who came early in and out, one by one, at a pace from which a wait can be estimated."""
        await self.harness.run_worker()
        for user in early(times):
            await self.pass_time(every)
            await self.move_up(room, user)
            await self.harness.run_worker()

    async def start(self) -> None:
        """Serve, on the same port as before."""
        api = room_api(self.harness.rooms, self._settings)
        application = build_application(api.routes, self._settings, raw=api.raw)
        service = HttpService(application, self._binding, on_stop=api.close)
        stopping = asyncio.Event()
        self._serving = stopping, asyncio.create_task(service.run(stopping))

    async def stop(self) -> None:
        """Serve no more; nobody listens then."""
        if self._serving is not None:
            stopping, task = self._serving
            self._serving = None
            stopping.set()
            await task


def early(count: int) -> list[str]:
    """Those who were there before."""
    return [f"early-{n}" for n in range(count)]


@asynccontextmanager
async def room_site_at(folder: Path, valkey: Valkey, http: HttpSettings | None = None) -> AsyncGenerator[RoomSite]:
    """A site on SQLite and this server, for the length of a block."""
    settings = (http or HttpSettings()).model_copy(update={"port": 0})
    url = await migrated_file(folder / "site.db")
    async with harness_at(url, valkey, ManualClock()) as harness:
        with Binding(settings) as binding:
            site = RoomSite(harness, binding, settings)
            await site.start()
            try:
                yield site
            finally:
                await site.stop()
