"""Rooms over HTTP for the tests: a server before a rooms, and somebody who asks it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.http.serving import Client, Reply
from tests.waiting import patience
from tidegate.http import Binding
from tidegate.http.application import build_application
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings
from tidegate.systems.waiting_room import WaitingRooms
from tidegate.systems.waiting_room.api.routes import room_api

HEADER = "Tidegate-Pass"
PLAN: dict[str, Any] = {"capacity": 1}


class Counter(Client):
    """Asks, and can stop who answers."""

    def __init__(self, session: aiohttp.ClientSession, url: str, stopping: asyncio.Event) -> None:
        super().__init__(session, url)
        self.stop = stopping.set


@asynccontextmanager
async def served(rooms: WaitingRooms, settings: HttpSettings | None = None) -> AsyncGenerator["Counter"]:
    """Answers until the end of the block; then streams are ended, and it stops in order."""
    http = (settings or HttpSettings()).model_copy(update={"port": 0})
    stopping = asyncio.Event()
    api = room_api(rooms, http)
    with Binding(http) as binding:
        service = HttpService(build_application(api.routes, http, raw=api.raw), binding, on_stop=api.close)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            serving = asyncio.create_task(service.run(stopping))
            try:
                yield Counter(session, binding.url, stopping)
            finally:
                stopping.set()
                async with patience():
                    await serving


async def put(client: Client, path: str, body: Any) -> Reply:
    return await client.ask("PUT", path, json=body)


async def bring(client: Client, user: str, room: str = "sale") -> dict[str, Any]:
    """The shop adds a user; returns the place, with the pass."""
    reply = await client.post(f"/v1/rooms/{room}/entries", {"user": user})
    assert reply.status == 200, reply
    return reply.json


def showing(token: str) -> dict[str, Any]:
    """For a request that shows a pass."""
    return {"headers": {HEADER: token}}
