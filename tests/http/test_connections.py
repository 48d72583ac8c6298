"""Connections at their edges: idle ones that a request reaches late, pipelined ones that are lost, failing handlers."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.http.asgi import ask
from tests.waiting import patience, until
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
AT_ONCE, LAST = REQUEST.replace(b"/short", b"/at-once"), REQUEST.replace(b"/short", b"/last")
LARGE = b"y" * 50_000


class Site:
    """A server with one short answer and one stream that lasts until its client leaves."""

    def __init__(self) -> None:
        self.stopping, self.stream_ended = asyncio.Event(), asyncio.Event()
        self.connection: Any = None
        """The server's side of the connection of the last request."""
        self.port = 0
        self.was_asked = False
        """Whether a request was answered by a task."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.was_asked = True
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

    def answer_at_once(self, address: bytes, scope: Scope) -> list[bytes] | None:
        self.connection = scope["state"][CONNECTION]
        if address == b"/at-once":
            return [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", b"now"]
        if address == b"/large":
            return [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(LARGE), LARGE]
        return None

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


@pytest.mark.parametrize(("request_", "body"), [(REQUEST, b"ok"), (AT_ONCE, b"now")], ids=["by a task", "at once"])
async def test_a_request_that_arrives_at_the_idle_timeout_is_answered(site: Site, request_: bytes, body: bytes):
    with site.connect() as client:
        client.send(request_)
        assert (await answer(client)).endswith(body)
        site.connection.timeout_keep_alive_handler()  # early: the connection is not idle for long enough
        site.connection.timeout_keep_alive = 0

        client.send(request_)
        site.connection.timeout_keep_alive_handler()

        assert (await answer(client)).endswith(body)
        site.connection.timeout_keep_alive_handler()
        assert await answer(client) == b"", "an idle connection is closed"


async def test_answers_at_once_keep_the_order_of_pipelined_requests(site: Site):
    with site.connect() as client:
        client.send(AT_ONCE + REQUEST + AT_ONCE + REQUEST[:9])
        await asyncio.sleep(0)
        client.send(REQUEST[9:] + LAST)

        answers = (await everything(client)).split(b"HTTP/1.1 200 OK")[1:]

    assert [each.partition(b"\r\n\r\n")[2] for each in answers] == [b"now", b"ok", b"ok", b"ok", b"ok"]


async def test_a_connection_is_not_idle_while_a_pipelined_request_is_answered(site: Site):
    with site.connect() as client:
        client.send(AT_ONCE + STREAM)
        assert b"now" in await answer(client)
        await until(lambda: site.was_asked)
        site.connection.timeout_keep_alive = 0
        site.connection.timeout_keep_alive_handler()

        assert not site.connection.transport.is_closing()


async def test_a_client_that_does_not_read_gets_no_more_answers_at_once(site: Site):
    with site.connect() as client:
        client.send(AT_ONCE.replace(b"/at-once", b"/large") * 400 + LAST)
        await until(lambda: site.was_asked)
        assert site.connection.transport.get_write_buffer_size() < 4 * len(LARGE)

        answers = (await everything(client)).split(b"HTTP/1.1 200 OK")[1:]

    bodies = [each.partition(b"\r\n\r\n")[2] for each in answers]
    assert len(bodies) == 401
    assert set(bodies) == {LARGE, b"ok"}
    assert bodies[0] == LARGE


@pytest.mark.parametrize(("request_", "body"), [(REQUEST, b"ok"), (AT_ONCE, b"now")], ids=["by a task", "at once"])
async def test_a_request_that_arrives_during_shutdown_is_answered_before_the_connection_closes(
    site: Site, request_: bytes, body: bytes
):
    with site.connect() as client, site.connect() as idle, site.connect() as slow:
        for each in (client, idle, slow):
            each.send(request_)
            assert (await answer(each)).endswith(body)

        client.send(request_)
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


async def test_an_exception_while_answering_at_once_is_left_to_the_task():
    class Failing:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            raise AssertionError("not called")

        def answer_at_once(self, address: bytes, scope: Scope) -> list[bytes] | None:
            raise ValueError("a defect")

    def mount(application: Application) -> Application:
        del application
        return Failing()

    application: Any = build_application([], HttpSettings(), raw={"/v1/raw/": mount})

    assert application.answer_at_once(b"/v1/raw/7", {}) is None
    assert application.answer_at_once(b"/v1/other", {}) is None


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
