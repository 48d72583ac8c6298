"""An upstream that answers at once, in a process of its own: `-m bench.answers` prints its port.

`GET /pages/7` is a page of ten items, about 3 KB. It speaks just enough HTTP to keep connections open, so that it takes
as little of the machine as it can from the measured processes.
"""

import asyncio
import sys
from typing import cast

import uvloop

ITEMS = 10
_ITEM = b'{"id":"%d-%d","title":"An item that was written by somebody","state":"open","body":"%s"}'
_BODY = b"It says what items say, and is as long as such things are. " * 3
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class Answering(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._heard = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own, which is none by its class

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        *requests, self._heard = (self._heard + data).split(b"\r\n\r\n")
        assert self._transport is not None
        self._transport.writelines([answer(request) for request in requests])


def answer(request: bytes) -> bytes:
    """The page that is asked for."""
    path = request.split(b" ", 2)[1]
    page = int(path.rpartition(b"/")[2])
    body = b"[" + b",".join(_ITEM % (page, n, _BODY) for n in range(ITEMS)) + b"]"
    return _HEAD % len(body) + body


async def main() -> None:
    """Serve until the input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answering, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
