"""Ends the commands in flight before the connections of a client are closed.

The client library opens connections again for a command that it retries and for a command that begins after the client
was closed. Such a connection stays open for the lifetime of the process.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate.core.errors import ValkeyUnavailable


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
