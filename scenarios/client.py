"""A client that costs little: plain connections that are kept, one request at a time on each."""

import asyncio
from typing import Self, cast
from urllib.parse import urlsplit

import msgspec

_LENGTH = b"content-length:"
_WITHIN_S = 60.0
_IDLE_S = 2.0


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[Answer] | None = None
        self._used_at = asyncio.get_running_loop().time()

    @property
    def is_good(self) -> bool:
        """Whether it can be used: the server may be about to close one that was idle for long."""
        idle_s = asyncio.get_running_loop().time() - self._used_at
        return idle_s < _IDLE_S and self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server hung up"))

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        at = head.find(_LENGTH)
        length = 0 if at < 0 else int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        if len(self._received) < end + 4 + length:
            return
        answer = Answer(int(head[9:12]), bytes(self._received[end + 4 : end + 4 + length]))
        self._received.clear()
        if self._answer is not None and not self._answer.done():
            self._used_at = asyncio.get_running_loop().time()
            self._answer.set_result(answer)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Client:
    """Asks one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._free: list[_Connection] = []
        self._all: list[_Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        for connection in self._all:
            connection.close()

    async def open(self, connections: int) -> None:
        """Open this many connections in advance, so that opening them is not measured."""
        self._free += [await self._connect() for _ in range(connections - len(self._free))]

    async def get(self, path: str) -> Answer:
        """Ask, and wait for the answer."""
        return await self.send("GET", path)

    async def send(self, method: str, path: str, body: bytes = b"") -> Answer:
        """The same with any method."""
        length = "" if method == "GET" else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n{length}\r\n"
        request = head.encode() + body
        while self._free and not self._free[-1].is_good:
            self._free.pop().close()
        connection = self._free.pop() if self._free else await self._connect()
        async with asyncio.timeout(_WITHIN_S):
            answer = await connection.ask(request)
        self._free.append(connection)
        return answer

    async def _connect(self) -> _Connection:
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, self._host, self._port)
        self._all.append(connection)
        return connection
