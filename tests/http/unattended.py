"""HTTP with the dashboard, of a process in which nobody leads and nobody works: nothing moves by itself."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.http.serving import Client
from tests.servers.migrated import migrated_folder
from tidegate.app import Collection, open_collection
from tidegate.app.campaigns import open_campaigns
from tidegate.app.crowd import open_reception
from tidegate.app.settings import Settings
from tidegate.app.settings.http import HttpSettings
from tidegate.dashboard import open_dashboard
from tidegate.http import Binding, serve_collection
from tidegate.http.channel import Seats
from tidegate.primitives.gate import Gate
from tidegate.storage.sql import Database


@dataclass(frozen=True)
class Unattended:
    """The server, and what is behind it."""

    client: Client
    collection: Collection

    @property
    def database(self) -> Database:
        return self.collection.parts.database

    @property
    def gate(self) -> Gate:
        return self.collection.parts.gate


@asynccontextmanager
async def unattended(folder: Path) -> AsyncGenerator[Unattended]:
    """It answers what `tidegate serve` does, on embedded parts in `folder`."""
    settings = Settings(data_dir=await migrated_folder(folder), http=HttpSettings(port=0))
    async with AsyncExitStack() as stack:
        collection = await stack.enter_async_context(open_collection(settings, needs_credential=False))
        parts, seats = collection.parts, Seats(settings.http.most_listeners)
        reception = open_reception(settings, parts.database, parts.valkey)
        campaigns = await stack.enter_async_context(open_campaigns(settings, parts.database, parts.valkey))
        further = open_dashboard(collection, seats, reception=reception, campaigns=campaigns)
        binding = stack.enter_context(Binding(settings.http))
        service = serve_collection(
            collection, settings.http, binding, reception=reception, campaigns=campaigns, seats=seats, further=further
        )
        session = await stack.enter_async_context(aiohttp.ClientSession())
        stopping = asyncio.Event()
        running = asyncio.create_task(service.run(stopping))
        try:
            yield Unattended(Client(session, binding.url), collection)
        finally:
            stopping.set()
            await running
