"""The servers that a deployment stands on: real ones, which can be lost, and wires to them that can be made slow."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from typing import Any

import msgspec
from chaos.servers import LosableValkey
from tests.servers.kafka import broker
from tests.servers.proxy import Proxy
from tests.servers.sql import sql_server
from tests.servers.valkey import Cluster

from scenarios.stage import On
from tidegate.systems.snapshots.settings import KafkaSettings

_SESSION_S = 10


class Wire(StrEnum):
    """What the processes of a deployment can have a wire to."""

    VALKEY = "valkey"
    DATABASE = "database"
    KAFKA = "kafka"


class Servers(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses for the observer, and for the processes of the deployment, which may be proxied."""

    direct: dict[str, Any]
    """Settings."""
    wired: dict[str, Any]
    wires: dict[Wire, Proxy]
    valkey: LosableValkey | Cluster


@asynccontextmanager
async def open_servers(
    on: On, *, wired: frozenset[Wire], on_postgres: bool, keeps: bool, is_cluster: bool
) -> AsyncGenerator[Servers]:
    """Start the required servers, empty."""
    async with AsyncExitStack() as stack:
        valkey = Cluster() if is_cluster else stack.enter_context(LosableValkey(keeps=keeps))
        if isinstance(valkey, Cluster):
            stack.callback(valkey.stop)
        servers = Servers(direct={"valkey_url": valkey.url}, wired={"valkey_url": valkey.url}, wires={}, valkey=valkey)
        if Wire.VALKEY in wired and isinstance(valkey, LosableValkey):
            wire = servers.wires[Wire.VALKEY] = await stack.enter_async_context(Proxy(valkey.port))
            servers.wired["valkey_url"] = f"redis://127.0.0.1:{wire.port}"
        if on_postgres:
            await _postgres(servers, stack, is_wired=Wire.DATABASE in wired)
        if on is On.KAFKA:
            await _kafka(servers, stack, is_wired=Wire.KAFKA in wired)
        yield servers


async def _postgres(servers: Servers, stack: AsyncExitStack, *, is_wired: bool) -> None:
    server = sql_server("postgres")
    name = await stack.enter_async_context(server.database())
    port = server.port
    if is_wired:
        wire = servers.wires[Wire.DATABASE] = await stack.enter_async_context(Proxy(server.port))
        port = wire.port
    servers.direct.update(database_url=server.url(name), auto_migrate=True)
    servers.wired.update(database_url=server.url(name, port=port), auto_migrate=True)


async def _kafka(servers: Servers, stack: AsyncExitStack, *, is_wired: bool) -> None:
    server = broker()
    settings = server.settings()
    stack.push_async_callback(server.forget, settings)
    at = settings.servers
    if is_wired:
        wire = servers.wires[Wire.KAFKA] = await stack.enter_async_context(Proxy(server.wired_port, at=server.wire_at))
        at = f"127.0.0.1:{wire.port}"
    servers.direct["snapshots"] = {"transport": "kafka", "kafka": _chosen(settings, settings.servers)}
    servers.wired["snapshots"] = {"transport": "kafka", "kafka": _chosen(settings, at)}


def _chosen(settings: KafkaSettings, servers: str) -> dict[str, Any]:
    """As an installation has it, except that one broker is all there is."""
    return {"servers": servers, "prefix": settings.prefix, "replication": 1, "session": f"{_SESSION_S}s"}
