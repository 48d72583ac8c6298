"""Real servers that speak our protocol: the embedded one, a cluster of three from the same binary, Debian's Redis 7.

Each lives in a temporary folder of its own, and dies with this process, however that ends.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

from redis import Redis
from redis._parsers.commands import AsyncCommandsParser
from redis.asyncio.cluster import ClusterNode

from tests.servers.guarded import GuardedServer, new_folder
from tests.servers.ports import free_ports
from tests.waiting import until_sync
from tidegate.storage.valkey import Unit, Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.storage.valkey.embedded import EmbeddedServer, server_binary

_READY = "eady to accept connections"
"""Valkey begins its line with it, Redis does not."""
_IN_MEMORY = ("--save", "", "--appendonly", "no")
_SLOTS = 16384


ALL_VALKEY = ("embedded", "cluster", "redis7")


class ServerMissing(Exception):
    """This machine has no such server; the message says why and what to do."""


def wait_until_stopped(folder: Path) -> None:
    """Block until the guardian of this folder, and with it its server, has gone."""
    descriptor = os.open(folder / "guardian.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)


class ValkeyServer:
    """A server started with our own options, in memory; on a socket unless a port is given."""

    def __init__(self, *options: str, binary: Path | None = None, port: int | None = None) -> None:
        folder = new_folder(None)
        socket = str(folder / "server.sock")
        where = ("--port", "0", "--unixsocket", socket) if port is None else ("--port", str(port))
        command = [str(binary or server_binary()), "--bind", "127.0.0.1", "--dir", str(folder), *where]
        self._guard = GuardedServer(folder, [*command, *_IN_MEMORY, *options], ready=_READY, signal="TERM", user=None)
        self.url = f"unix://{socket}" if port is None else f"redis://127.0.0.1:{port}"

    def client(self) -> Redis:
        """A plain connection, for what tests do behind the back of our own."""
        return Redis.from_url(self.url, protocol=3, legacy_responses=False)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        self._guard.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Embedded:
    """The server of a data folder, exactly as an installation without a server of its own gets it."""

    def __init__(self) -> None:
        self._data_dir = new_folder(None)
        self._server = EmbeddedServer.start_and_wait(self._data_dir)
        self.url = self._server.url
        self.version = version_of(server_binary())

    def stop(self) -> None:
        """Let go, wait until it is gone, and remove its folder."""
        self._server.close()
        wait_until_stopped(self._data_dir / "valkey")
        shutil.rmtree(self._data_dir, ignore_errors=True)


class Cluster:
    """Three primaries that share the slots."""

    def __init__(self) -> None:
        ports = free_ports(6)
        self.nodes = [
            ValkeyServer("--cluster-enabled", "yes", "--cluster-port", str(bus), port=port)
            for port, bus in zip(ports[:3], ports[3:], strict=True)
        ]
        self.url = f"redis+cluster://127.0.0.1:{ports[0]}"
        self.version = version_of(server_binary())
        _read_commands_once()
        _join([node.client() for node in self.nodes], list(zip(ports[:3], ports[3:], strict=True)))

    def stop(self) -> None:
        """Stop every node."""
        for node in self.nodes:
            node.stop()


def _join(clients: list[Redis], addresses: list[tuple[int, int]]) -> None:
    """Make one cluster of lone nodes, and return when all of them say that it stands."""
    bounds = [round(_SLOTS * n / len(clients)) for n in range(len(clients) + 1)]
    for n, client in enumerate(clients):
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
        client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
    for client in clients:
        for port, bus in addresses:
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)
    until_sync(lambda: all(_stands(client, size=len(clients)) for client in clients))
    for client in clients:
        client.close()


@cache
def _read_commands_once() -> None:
    """Let the clients of a cluster share the table of the server's commands.

    Each client reads and parses it when it connects, which takes longer than most tests. All servers here are of one
    version.
    """
    read, table = AsyncCommandsParser.initialize, dict[str, Any]()

    async def initialize(self: AsyncCommandsParser, node: ClusterNode | None = None) -> None:
        if not table:
            await read(self, node)
            table.update(self.commands)
        self.node = node or self.node
        self.commands = table

    AsyncCommandsParser.initialize = initialize


def _cluster_info(client: Redis) -> dict[str, str]:
    reply: Any = client.execute_command("CLUSTER", "INFO")
    if isinstance(reply, dict):
        return {str(name): str(value) for name, value in reply.items()}
    return dict(re.findall(r"(\w+):(\S+)", reply.decode()))


def _stands(client: Redis, *, size: int) -> bool:
    info = _cluster_info(client)
    return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == info["cluster_size"] == str(size)


class Redis7(ValkeyServer):
    """The system's Redis."""

    def __init__(self) -> None:
        binary = redis_binary()
        super().__init__(binary=binary)
        self.version = version_of(binary)


def redis_binary() -> Path:
    """The `redis-server` of this machine; `ServerMissing` where there is none that can serve."""
    path = shutil.which("redis-server")
    if path is None:
        raise ServerMissing("no redis-server on the PATH (make services)")
    if not re.match(r"Redis ([7-9]|\d\d)", version := version_of(Path(path))):
        raise ServerMissing(f"the redis-server on the PATH is {version}, not Redis 7 or newer")
    return Path(path)


def version_of(binary: Path) -> str:
    """Product and version, as the binary tells them."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return re.sub(r"^(\w+) server v=(\S+).*", r"\1 \2", said.strip())


@asynccontextmanager
async def empty_valkey(url: str) -> AsyncGenerator[Valkey]:
    """A connection to a server that has forgotten everything, scripts excepted."""
    async with connected(url) as valkey:
        await valkey.execute("FLUSHALL")  # a cluster's client sends it to every primary
        yield valkey


async def leftover_keys(valkey: Valkey, unit: Unit) -> dict[str, int | None]:
    """The parts of a unit that still have a key, each with the ms until it expires; None: it never does.

    What a test expects to remain is its business; what nobody expects has leaked.
    """
    prefix = unit.key("x")[:-1]
    # A backslash takes the special meaning from a character of the pattern.
    pattern = re.sub(r"([\\*?\[\]])", r"\\\1", prefix) + "*"
    # A script is sent to the node on which the unit lies. The servers of tests are small enough for KEYS.
    found = await valkey.execute("EVAL", "return redis.call('KEYS', ARGV[1])", 1, unit.key("x"), pattern)
    keys = sorted(key.decode() for key in found)
    lives = await valkey.pipeline([("PTTL", key) for key in keys])
    return {key[len(prefix) :]: None if life < 0 else life for key, life in zip(keys, lives, strict=True)}
