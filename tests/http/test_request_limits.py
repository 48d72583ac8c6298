"""What every answer tells browsers, and what the head of a request may be."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.http.asgi import ask
from tests.http.serving import Served
from tests.http.test_sessions import APP, OPERATE, bearer
from tests.waiting import look_again, observe_absence, patience, simulated_delay
from tidegate.http import server

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
HSTS = "strict-transport-security"


async def test_every_response_has_security_headers(deployment: Served):
    for method, path in (("GET", "/healthz"), ("GET", "/nothing"), ("POST", "/v1/runs"), ("PUT", "/v1/runs")):
        answer = await deployment.client.ask(method, path)
        assert {name: answer.headers[name] for name in ALWAYS} == ALWAYS, path
        assert "permissions-policy" not in answer.headers, "which is for pages"


async def test_a_page_has_its_own_content_security_policy(deployment: Served):
    page = await deployment.client.get("/docs")

    assert "style-src 'self'" in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert "camera=()" in page.headers["permissions-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    alone = await ask(APP, "GET", "/docs", bearer(OPERATE))  # of two of the same name, the last one is told
    assert "style-src 'self'" in alone.headers["content-security-policy"]


async def test_with_tls_strict_transport_security_is_sent():
    plain = await ask(APP, "GET", "/v1/thing", bearer(OPERATE))
    direct = await ask(APP, "GET", "/v1/thing", bearer(OPERATE), scheme="https")
    proxied = await ask(APP, "GET", "/v1/thing", bearer(OPERATE) | {"x-forwarded-proto": "https"})

    assert HSTS not in plain.headers
    assert direct.headers[HSTS] == proxied.headers[HSTS] == "max-age=31536000"


async def sent(url: str, *pieces: bytes) -> tuple[int, dict[str, str], Any]:
    """What comes back for bytes, until the server closes."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await simulated_delay(0.01 if len(pieces) > 1 else 0)  # each in a packet of its own
        async with patience():
            raw = await reader.read()
    finally:
        writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, json.loads(body)


def request(path: str = "/v1/runs", more: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n" % (path.encode(), more)


@pytest.mark.parametrize(
    ("head", "status", "problem"),
    [
        (request(f"/v1/runs?login={'x' * 8200}"), 414, "address-too-long"),
        (request("/" + "x" * 8200), 414, "address-too-long"),
        (request(more=b"".join(b"X-%d: y\r\n" % n for n in range(120))), 431, "head-too-large"),
        (request(more=b"X-Long: %b\r\n" % (b"y" * 33_000)), 431, "head-too-large"),
        (request(more=b"".join(b"X-%d: %b\r\n" % (n, b"y" * 1000) for n in range(40))), 431, "head-too-large"),
    ],
    ids=["query", "path", "many", "long", "all of them"],
)
async def test_a_too_large_head_is_refused(head: bytes, status: int, problem: str, deployment: Served):
    answer = await sent(deployment.client.url, head)

    # In one piece it reaches us; in several, whoever reads it for us has had enough before.
    assert answer[0] in (status, 400)
    assert answer[2]["type"] in (f"/docs#{problem}", "/docs#bad-request")
    assert answer[1]["connection"] == "close"


async def test_an_endless_head_is_not_buffered(deployment: Served):
    status, headers, problem = await sent(deployment.client.url, *[b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000] * 2)

    assert (status, problem["type"]) == (431, "/docs#head-too-large")
    assert {name: headers[name] for name in ALWAYS} == ALWAYS


async def test_a_head_may_arrive_in_pieces(deployment: Served):
    head = request("/v1/runs?limit=0", b"X-Long: %b\r\nConnection: close\r\n" % (b"y" * 20_000))
    pieces = [head[at : at + 9000] for at in range(0, len(head), 9000)]

    assert (await sent(deployment.client.url, *pieces))[2]["type"] == "/docs#invalid", "it was read"


async def test_heads_of_usual_size_are_accepted(deployment: Served):
    headers = {f"x-{n}": "y" * 300 for n in range(60)}

    assert (await deployment.client.get("/v1/runs", headers=headers)).status == 200


@pytest_asyncio.fixture(loop_scope="module")
async def hurry(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    monkeypatch.setattr(server, "_HEAD_WITHIN_S", 0.2)
    yield


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nX: ",
        b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body that nobody wants"],
)
async def test_a_client_that_sends_no_complete_request_is_disconnected(said: bytes, deployment: Served, hurry: None):
    """Also if the client sends a little now and then."""
    del hurry
    address = urlsplit(deployment.client.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(said)

    async def babble() -> None:
        while True:
            writer.write(b"y")
            await look_again()

    babbling = asyncio.create_task(babble()) if said else None
    try:
        async with patience():  # the server closes an idle connection after 5 s anyway
            while await reader.read(4096):
                pass
    except ConnectionError:
        pass
    finally:
        if babbling is not None:
            babbling.cancel()
        writer.close()


async def test_a_client_that_is_being_answered_is_not_disconnected(deployment: Served, monkeypatch: pytest.MonkeyPatch):
    """Patience is for those who have to say something, and a stream has been asked for."""
    monkeypatch.setattr(server, "_HEAD_WITHIN_S", 2.0)  # enough for the pieces of a head on a busy machine
    address = urlsplit(deployment.client.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for piece in (b"GET /healthz HT", b"TP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            writer.write(piece)
            await simulated_delay(0.05)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.read(1000)
        await observe_absence(2.3)  # longer than the patience that was begun with
        writer.write(request())
        async with patience():
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    finally:
        writer.close()
