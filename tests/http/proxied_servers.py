"""A deployment whose wires to both of its servers can be cut."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.http.serving import Client, Served, served
from tests.servers.migrated import migrated_on
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer


@dataclass(frozen=True)
class Cut:
    """A deployment whose wires to both servers can be cut."""

    served: Served
    valkey: Proxy
    database: Proxy

    @property
    def client(self) -> Client:
        return self.served.client


@asynccontextmanager
async def wired_to_servers(folder: Path, **options: Any) -> AsyncGenerator[Cut]:
    """On a Valkey and a PostgreSQL of its own, for the length of a block; `options` are those of `served`."""
    [port] = free_ports(1)
    async with AsyncExitStack() as stack:
        stack.enter_context(ValkeyServer(port=port))
        to_valkey = await stack.enter_async_context(Proxy(port))
        postgres, name = await stack.enter_async_context(migrated_on("postgres"))
        to_database = await stack.enter_async_context(Proxy(postgres.port))
        urls = {
            "valkey_url": f"redis://127.0.0.1:{to_valkey.port}",
            "database_url": postgres.url(name, port=to_database.port),
        }
        started = await stack.enter_async_context(served(folder, **urls, **options))
        yield Cut(started, to_valkey, to_database)
