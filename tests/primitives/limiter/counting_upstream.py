"""An upstream that only counts: a process of its own, whose own clock says when each call arrived.

    python -m tests.primitives.limiter.counting_upstream CLIENTS

Prints its port, starts all clients at once when the last one has connected, takes every byte for a call, and prints the
moments of arrival (ns, by its monotonic clock) as JSON when all have left.
"""

import asyncio
import json
import sys
import time


class _Client(asyncio.Protocol):
    def __init__(self, upstream: "CountingUpstream") -> None:
        self._upstream = upstream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._upstream.greet(transport)

    def data_received(self, data: bytes) -> None:
        self._upstream.arrivals.extend([time.monotonic_ns()] * len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._upstream.part()


class CountingUpstream:
    def __init__(self, clients: int) -> None:
        self.arrivals: list[int] = []
        self._transports: list[asyncio.Transport] = []
        self._expected = self._present = clients
        self._empty = asyncio.Event()

    def greet(self, transport: asyncio.Transport) -> None:
        self._transports.append(transport)
        if len(self._transports) == self._expected:
            for each in self._transports:
                each.write(b"go")

    def part(self) -> None:
        self._present -= 1
        if self._present == 0:
            self._empty.set()

    async def serve(self) -> None:
        server = await asyncio.get_running_loop().create_server(lambda: _Client(self), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await self._empty.wait()
        server.close()
        print(json.dumps(self.arrivals), flush=True)


async def main() -> None:
    await CountingUpstream(int(sys.argv[1])).serve()


if __name__ == "__main__":
    asyncio.run(main())
