"""HTTP with the dashboard, of a process in which nobody leads and nobody works: nothing moves by itself."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.http.serving import Client, open_systems
from tests.servers.migrated import migrated_folder
from tidegate.app.serving import serve_systems
from tidegate.dashboard import open_dashboard
from tidegate.engine.collection import Collection
from tidegate.http import Binding
from tidegate.http.events import ListenerLimit
from tidegate.http.settings import HttpSettings
from tidegate.primitives.gate import Gate
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.system import find_system


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
        return self.collection.cell("github").parts.gate


@asynccontextmanager
async def unattended(folder: Path) -> AsyncGenerator[Unattended]:
    """It answers what `tidegate serve` does, on embedded parts in `folder`."""
    settings = Settings(data_dir=await migrated_folder(folder), http=HttpSettings(port=0))
    async with AsyncExitStack() as stack:
        opened = await open_systems(stack, settings)
        collection = opened[0].collection
        parts, seats = collection.parts, ListenerLimit(settings.http.most_listeners)
        others = [find_system(name).open(parts) for name in ("waiting_room", "campaigns")]
        systems = [*opened, *[await stack.enter_async_context(each) for each in others]]
        further = open_dashboard(systems, seats)
        binding = stack.enter_context(Binding(settings.http))
        service = serve_systems(parts, systems, binding, seats=seats, further=further.api())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        stopping = asyncio.Event()
        running = asyncio.create_task(service.run(stopping))
        try:
            yield Unattended(Client(session, binding.url), collection)
        finally:
            stopping.set()
            await running
