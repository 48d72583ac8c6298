"""Upstreams to call: well-behaved ones, and ones that say each byte themselves."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import web

from tidegate.engine.upstream import Request

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

TOKEN = "ghp_thisIsTheSecretOfTheTests0000000000"


@asynccontextmanager
async def web_server(handler: Handler) -> AsyncGenerator[str]:
    """A real web server that answers everything with `handler`; gives its address, without a slash at the end."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@dataclass
class RawServer:
    """What a server of bare bytes has seen."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list[bytes])
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed a connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def raw_server(behaviour: Behaviour) -> AsyncGenerator[RawServer]:
    """Reads one request per connection, lets `behaviour` say what it likes, and waits for the client to close."""
    seen = RawServer()
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        serving.add(task)
        seen.connections += 1
        with suppress(asyncio.CancelledError):  # the test is over
            await converse(reader, writer)
        seen.closed.set()
        writer.transport.abort()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            seen.requests.append(await reader.readuntil(b"\r\n\r\n"))
            await behaviour(reader, writer)
            while await reader.read(65536):
                pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    seen.port = server.sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def says(*parts: bytes, then: Callable[[asyncio.StreamWriter], None] | None = None) -> Behaviour:
    """Send `parts`, and `then` do something with the connection, such as closing it."""

    async def behaviour(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then:
            then(writer)

    return behaviour


def close(writer: asyncio.StreamWriter) -> None:
    """End in good order."""
    writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """End at once."""
    writer.transport.abort()


def get(url: str, **headers: str) -> Request:
    """A GET with a token; underscores in names of headers become dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(url=url, purpose="a.test", headers={"Authorization": f"Bearer {TOKEN}", **named})
