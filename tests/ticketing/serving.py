"""A stall over HTTP, and what its buyers ask."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from examples.ticketing.web import serve

from tests.http.serving import Client, Reply
from tests.ticketing.harness import TicketingHarness
from tidegate.http import Binding
from tidegate.http.settings import HttpSettings


class Buyer:
    """Somebody with a pass, or without."""

    def __init__(self, client: Client, pass_: str | None) -> None:
        self._client, self._headers = client, {} if pass_ is None else {"Tidegate-Pass": pass_}

    async def ask(self, method: str, path: str, **options: Any) -> Reply:
        headers = self._headers | options.pop("headers", {})
        return await self._client.ask(method, path, headers=headers, **options)

    async def reserve(self, schedule: int, seat: str) -> Reply:
        return await self.ask("POST", f"/api/schedules/{schedule}/reservations", json={"seat": seat})

    async def pay(self, reservation: str, key: str | None = "key", card: str = "4242424242424242") -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        place = f"/api/reservations/{reservation}/payments"
        return await self.ask("POST", place, json={"card": card}, headers=headers)


@asynccontextmanager
async def served(harness: TicketingHarness) -> AsyncGenerator[Client]:
    """The shop at an address, for the length of a block."""
    stopping = asyncio.Event()
    with Binding(HttpSettings(port=0)) as binding:
        async with aiohttp.ClientSession() as session:
            serving = asyncio.create_task(serve(harness.shop, binding).run(stopping))
            try:
                yield Client(session, binding.url)
            finally:
                stopping.set()
                await serving
