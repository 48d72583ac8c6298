"""Connections at their edges: idle ones that a request reaches late, pipelined ones that are lost, failing handlers."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.http.asgi import ask
from tests.waiting import patience
from tidegate.http import Binding, server
from tidegate.http.application import build_application
from tidegate.http.asgi import Application, Receive, Scope, Send
from tidegate.http.dispatch import NoInput, read_pairs
from tidegate.http.problems import RequestFailed
from tidegate.http.raw_handlers import CONNECTION
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings

REQUEST = b"GET /short HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
STREAM = REQUEST.replace(b"/short", b"/stream")


class Site:
    """A server with one short answer and one stream that lasts until its client leaves."""

    def __init__(self) -> None:
        self.stopping, self.stream_ended = asyncio.Event(), asyncio.Event()
        self.connection: Any = None
        """The server's side of the connection of the last request."""
        self.port = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.connection = scope["state"][CONNECTION]
        is_stream = scope["path"] == "/stream"
        headers = [] if is_stream else [(b"content-length", b"2")]
        if scope["path"] == "/last":
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok", "more_body": is_stream})
        if is_stream:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.stream_ended.set()

    def connect(self) -> socket.socket:
        """A client; what it sends is in the server's socket at once, and unread until the loop has its turn."""
        client = socket.create_connection(("127.0.0.1", self.port))
        client.setblocking(False)
        return client


async def answer(client: socket.socket) -> bytes:
    async with patience():
        return await asyncio.get_running_loop().sock_recv(client, 65536)


@pytest_asyncio.fixture
async def site() -> AsyncGenerator[Site]:
    site = Site()
    with Binding(HttpSettings(port=0)) as binding:
        site.port = binding.port
        service = HttpService(site, binding, on_stop=lambda: None)
        serving = asyncio.create_task(service.run(site.stopping))
        yield site
        site.stopping.set()
        async with patience():
            await serving


async def test_a_request_that_arrives_at_the_idle_timeout_is_answered(site: Site):
    with site.connect() as client:
        client.send(REQUEST)
        assert (await answer(client)).endswith(b"ok")

        client.send(REQUEST)
        site.connection.timeout_keep_alive_handler()

        assert (await answer(client)).endswith(b"ok")
        site.connection.timeout_keep_alive_handler()
        assert await answer(client) == b"", "an idle connection is closed"


async def test_a_request_that_arrives_during_shutdown_is_answered_before_the_connection_closes(site: Site):
    with site.connect() as client, site.connect() as idle, site.connect() as slow:
        for each in (client, idle, slow):
            each.send(REQUEST)
            assert (await answer(each)).endswith(b"ok")

        client.send(REQUEST)
        slow.send(REQUEST[:10])
        site.stopping.set()

        assert b"connection: close" in await answer(client)
        assert await answer(client) == await answer(idle) == await answer(slow) == b""


async def send_all(client: socket.socket, data: bytes) -> None:
    async with patience():
        await asyncio.get_running_loop().sock_sendall(client, data)


async def everything(client: socket.socket) -> bytes:
    """What the server sends until it ends the connection; raises where it resets the connection."""
    received = b""
    while data := await answer(client):
        received += data
    return received


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 40_000, b"431"),
        (b"no request at all\r\n\r\n", b"400"),
        (b"POST /last HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n", b"200"),
    ],
    ids=["too large", "malformed", "answered before its body arrived"],
)
async def test_the_last_response_reaches_a_client_that_is_still_sending(site: Site, head: bytes, status: bytes):
    with site.connect() as client:
        await send_all(client, head)
        async with patience():
            await asyncio.get_running_loop().sock_recv(client, 1)  # the server has answered
        await send_all(client, b"y" * 500_000)
        client.shutdown(socket.SHUT_WR)

        assert (await everything(client)).startswith(b"TTP/1.1 " + status)


@pytest.mark.parametrize("limit", ["_LINGER_S", "_MOST_LINGERED"])
async def test_a_client_that_keeps_sending_is_disconnected(site: Site, limit: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, limit, 0.01 if limit == "_LINGER_S" else 1000)
    with site.connect() as client:
        await send_all(client, b"no request at all\r\n\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            await send_all(client, b"y" * 50_000_000)


async def test_an_upgrade_request_is_answered_and_so_is_the_next_request(site: Site):
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    with site.connect() as client:
        await send_all(client, REQUEST.replace(b"\r\n\r\n", b"\r\n%b\r\n" % upgrade) * 2000 + REQUEST)
        received = b""
        while received.count(b"\r\n\r\nok") < 2001:
            received += await answer(client)


async def test_malformed_requests_are_not_logged(site: Site, caplog: pytest.LogCaptureFixture):
    for said in (
        b"no request at all\r\n\r\n",
        REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
    ):
        with site.connect() as client:
            await send_all(client, said)
            assert (await answer(client)).startswith(b"HTTP/1.1 ")

    assert caplog.records == []


async def test_a_stream_ends_with_its_client_although_another_request_was_pipelined(site: Site):
    with site.connect() as client:
        client.send(STREAM + REQUEST)
        await answer(client)

    async with patience():
        await site.stream_ended.wait()


async def test_an_exception_of_a_raw_handler_is_a_problem_with_a_request_id():
    def failing(application: Application) -> Application:
        del application

        async def fail(scope: Scope, receive: Receive, send: Send) -> None:
            raise ValueError("a secret of ours")

        return fail

    raw: dict[str, Callable[[Application], Application]] = {"/v1/raw/": failing}
    reply = await ask(build_application([], HttpSettings(), raw=raw), "GET", "/v1/raw/thing", client="127.0.0.1")

    assert (reply.status, reply.problem) == (500, "failed")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert b"secret" not in reply.body


async def test_parameters_are_read_in_one_pass():
    """Any caller can send thousands of them to an address that is open."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    with pytest.raises(RequestFailed):  # such parameters are not known here
        read_pairs([(Name(n), "") for n in range(2_000)], NoInput, "parameter")

    assert compared < 20_000
