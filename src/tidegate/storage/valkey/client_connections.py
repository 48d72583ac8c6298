"""Closes idle connections of the client library, and ends its commands before a client is closed.

The client library keeps every connection that it ever opened: after a hundred campaigns were busy at once, a hundred
connections stay. `IdleConnections` records the smallest number of idle connections within a span. That number of
connections was not used in the span, so it closes as many, except for `keep` of them. There is no polling: the timer
runs only while more than `keep` connections are idle.

The client library also opens a connection for a command that it retries, or that begins after the client was closed.
Such a connection would stay open for the lifetime of the process.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from redis.asyncio import Redis, RedisCluster

from tidegate.core.errors import ValkeyUnavailable

SPAN_S = 10.0
"""Connections that were not needed for this long are closed."""


class IdleConnections:
    """The idle connections of one client."""

    def __init__(self, client: Redis | RedisCluster, *, keep: int) -> None:
        self._client, self._keep = client, keep
        self._fewest: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def note(self) -> None:
        """Count the idle connections. Called when a command ended, so that its connection is idle now."""
        idle = sum(len(each) for each in self._idle())
        if self._timer is None and idle > self._keep:
            self._fewest = idle
            self._timer = asyncio.get_running_loop().call_later(SPAN_S, self._close_unneeded)
        elif self._fewest is not None:
            self._fewest = min(self._fewest, idle)

    async def stop(self) -> None:
        """Stop the timer and wait for what is being closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close_unneeded(self) -> None:
        # The smallest number of idle connections in the span is what was never needed in it.
        unneeded = (self._fewest or 0) - self._keep
        self._timer, self._fewest = None, None
        while unneeded > 0 and (longest := max(self._idle(), key=len, default=None)):
            connection = longest.popleft() if isinstance(longest, deque) else longest.pop(0)
            self._forget(connection)
            task = asyncio.get_running_loop().create_task(_close(connection))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            unneeded -= 1
        # Begins the next span if more than `keep` are still idle.
        self.note()

    def _idle(self) -> Iterable["list[Any] | deque[Any]"]:
        """Per server, the one that was idle for longest first."""
        client = cast("Any", self._client)
        if isinstance(self._client, RedisCluster):
            return [getattr(node, "_free", []) for node in client.nodes_manager.nodes_cache.values()]
        # Not part of the library's interface: where a version has no such list, connections stay open.
        return [getattr(client.connection_pool, "_available_connections", [])]

    def _forget(self, connection: Any) -> None:
        """A node of a cluster also counts its connections."""
        if isinstance(self._client, RedisCluster):
            for node in cast("Any", self._client).nodes_manager.nodes_cache.values():
                if connection in node._connections:
                    node._connections.remove(connection)


async def _close(connection: Any) -> None:
    with suppress(Exception):  # it is not used again, whatever becomes of it
        await connection.disconnect()


class CommandsInFlight:
    """The commands of one `Valkey`."""

    def __init__(self, address: str) -> None:
        self._address, self._is_closed = address, False
        self._commands = set[asyncio.Timeout]()
        self._all_ended = asyncio.Event()

    @asynccontextmanager
    async def command(self) -> AsyncGenerator[None]:
        """The length of one command, which `close` ends with a `TimeoutError`.

        Raises `ValkeyUnavailable` after `close`.
        """
        if self._is_closed:
            raise ValkeyUnavailable(f"{self._address}: this client was closed", server=self._address)
        # A timeout without a time: `close` sets one in order to end the command.
        async with asyncio.timeout(None) as command:
            self._commands.add(command)
            try:
                yield
            finally:
                self._commands.discard(command)
                if not self._commands:
                    self._all_ended.set()

    async def close(self) -> None:
        """End all commands, wait until they have ended, and refuse others."""
        if not self._is_closed:
            self._is_closed = True
            self._all_ended.clear()
            for command in self._commands:
                command.reschedule(asyncio.get_running_loop().time())
        if self._commands:
            await self._all_ended.wait()
