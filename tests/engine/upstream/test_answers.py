"""What comes back when all goes well: statuses, headers, bodies in every encoding, connections used again."""

import asyncio
import gzip
import zlib
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.upstream.servers import TOKEN, get, raw_server, says, web_server
from tests.examples import examples
from tidegate.core.clock import ManualClock
from tidegate.core.errors import ContractBroken
from tidegate.core.telemetry import metrics
from tidegate.engine.upstream import Answer, Request, UpstreamClient, UpstreamSettings
from tidegate.engine.upstream.exchange import BadEncoding, Body, BodyCutShort, BodyTooLarge


async def echo(request: web.Request) -> web.Response:
    body = await request.read()
    headers = {"X-Method": request.method, "X-Target": request.raw_path}
    headers |= {f"Got-{name}": value for name, value in request.headers.items()}
    return web.Response(body=body or b"nothing", headers=headers, status=int(request.query.get("status", "200")))


async def test_a_response_has_status_headers_body_and_timing(client: UpstreamClient, clock: ManualClock) -> None:
    async with web_server(echo) as url:
        answer = await client.fetch(get(f"{url}/path?page=2"))

    assert (answer.status, answer.body, answer.url) == (200, b"nothing", f"{url}/path?page=2")
    assert answer.headers["x-METHOD"] == "GET"
    assert answer.headers["got-authorization"] == f"Bearer {TOKEN}"
    assert answer.received_at == clock.now()
    assert answer.date is not None
    assert abs(answer.date - datetime.now(UTC)).total_seconds() < 60
    assert answer.elapsed_ms > 0


async def test_requests_have_a_user_agent_and_accepted_encodings(client: UpstreamClient) -> None:
    async with web_server(echo) as url:
        answer = await client.fetch(get(url))

    assert answer.headers["Got-User-Agent"].startswith("tidegate/")
    assert answer.headers["Got-Accept-Encoding"] == "gzip, deflate"


async def test_headers_of_the_request_override_defaults(client: UpstreamClient) -> None:
    async with web_server(echo) as url:
        answer = await client.fetch(get(url, User_Agent="mine/1", Accept_Encoding="identity"))

    assert answer.headers["Got-User-Agent"] == "mine/1"
    assert answer.headers["Got-Accept-Encoding"] == "identity"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_bodies_are_sent(client: UpstreamClient, method: str) -> None:
    async with web_server(echo) as url:
        answer = await client.fetch(Request(url=url, method=method, body=b"x" * 100_000, purpose="test"))

    assert answer.headers["X-Method"] == method
    assert answer.body == b"x" * 100_000


@pytest.mark.parametrize("status", [200, 202, 204, 304, 400, 401, 403, 404, 409, 410, 422, 429, 451, 500, 502, 503])
async def test_every_status_is_returned_as_a_response(client: UpstreamClient, status: int) -> None:
    async with web_server(echo) as url:
        answer = await client.fetch(get(f"{url}/?status={status}"))

    assert answer.status == status
    assert answer.body == (b"" if status in (204, 304) else b"nothing")


async def test_a_304_response_has_headers_and_no_body(client: UpstreamClient) -> None:
    said = b'HTTP/1.1 304 Not Modified\r\nETag: W/"abc"\r\nContent-Encoding: gzip\r\n\r\n'
    async with raw_server(says(said)) as server:
        answer = await client.fetch(get(server.url, If_None_Match='W/"abc"'))

    assert (answer.status, answer.headers["etag"], answer.body) == (304, 'W/"abc"', b"")
    assert b'If-None-Match: W/"abc"' in server.requests[0]


async def test_a_head_request_for_a_large_body_is_small(client: UpstreamClient) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\nContent-Encoding: gzip\r\n\r\n"
    async with raw_server(says(said)) as server:
        answer = await client.fetch(Request(method="HEAD", url=server.url, purpose="test"))

    assert (answer.status, answer.body) == (200, b"")


async def test_a_url_is_sent_unchanged(client: UpstreamClient) -> None:
    """Cursors in links are not ours to write anew, not even into something that means the same."""
    target = "/repositories/1/issues?after=Y3Vyc29yOnYyOpLPAAA%3D%3D&labels=a%2Bb%20c+d&q=%7Btilde~%7D&x=%2F"
    async with web_server(echo) as url:
        answer = await client.fetch(get(url + target))

    assert answer.headers["X-Target"] == target


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(b"") + gzip.compress(data[half:])


ENCODERS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [*ENCODERS.items(), ("GZIP", gzip.compress), ("gzip", members), ("deflate", raw_deflate), ("identity", bytes)],
)
async def test_bodies_are_decompressed(client: UpstreamClient, encoding: str, encode: type[bytes]) -> None:
    original = b'[{"number": 1, "title": "a"}]' * 30_000

    async def compressed(_request: web.Request) -> web.Response:
        return web.Response(body=encode(original), headers={"Content-Encoding": encoding})

    async with web_server(compressed) as url:
        answer = await client.fetch(get(url))

    assert answer.body == original


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.binary(max_size=3000),
    cuts=st.lists(st.integers(0, 3000), max_size=6),
    encoding=st.sampled_from(["gzip", "deflate", "identity"]),
    most=st.integers(1, 3000),
)
def test_a_body_is_complete_or_refused_for_any_chunking(data: bytes, cuts: list[int], encoding: str, most: int) -> None:
    wire = {**ENCODERS, "identity": bytes}[encoding](data)
    places = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    body = Body(encoding, most)
    try:
        for start, end in pairwise(places):
            body.feed(wire[start:end])
        assert body.finish() == data
        assert max(len(data), len(wire)) <= most
    except BodyTooLarge:
        assert max(len(data), len(wire)) > most


@settings(max_examples=examples(40))
@given(data=st.binary(min_size=1, max_size=2000), keep=st.floats(0.01, 0.99), encoding=st.sampled_from(list(ENCODERS)))
def test_truncated_compressed_data_is_detected(data: bytes, keep: float, encoding: str) -> None:
    wire = ENCODERS[encoding](data)
    body = Body(encoding, 10_000)
    body.feed(wire[: max(1, int(len(wire) * keep))])
    with pytest.raises(BodyCutShort):
        body.finish()


def test_many_empty_gzip_members_are_refused() -> None:
    with pytest.raises(BadEncoding):
        Body("gzip", 1_000_000).feed(gzip.compress(b"") * 2000)


async def test_connections_are_reused(client: UpstreamClient) -> None:
    peers: set[object] = set()

    async def note(request: web.Request) -> web.Response:
        assert request.transport
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(body=b"x" * 3000)

    async with web_server(note) as url:
        for _ in range(20):
            await client.fetch(get(url))

    assert len(peers) == 1


async def test_two_hundred_concurrent_requests_share_the_connection_limit() -> None:
    peers: set[object] = set()
    inside = most_inside = 0

    async def note(request: web.Request) -> web.Response:
        nonlocal inside, most_inside
        assert request.transport
        peers.add(request.transport.get_extra_info("peername"))
        inside += 1
        most_inside = max(inside, most_inside)
        await asyncio.sleep(0)
        inside -= 1
        return web.Response(text=request.path)

    async with web_server(note) as url, UpstreamClient(UpstreamSettings(connections_per_host=20)) as client:
        answers = await asyncio.gather(*(client.fetch(get(f"{url}/{number}")) for number in range(200)))

    assert [answer.body for answer in answers] == [f"/{number}".encode() for number in range(200)]
    assert most_inside <= 20
    assert len(peers) <= 20


async def test_cookies_are_not_stored(client: UpstreamClient) -> None:
    async def set_cookie(request: web.Request) -> web.Response:
        answer = web.Response(text=str(request.headers.get("Cookie")))
        answer.set_cookie("session", "1")
        return answer

    async with web_server(set_cookie) as url:
        answers = [await client.fetch(get(url)) for _ in range(2)]

    assert [answer.body for answer in answers] == [b"None", b"None"]


async def test_a_response_can_be_serialised(client: UpstreamClient) -> None:
    async def doubled(_request: web.Request) -> web.Response:
        answer = web.Response(body=bytes(range(256)))
        answer.headers.add("Link", "<a>")
        answer.headers.add("Link", "<b>")
        return answer

    async with web_server(doubled) as url:
        answer = await client.fetch(get(url))
    again = Answer.unpack(answer.pack())

    assert again == answer
    assert again.headers.getall("LINK") == ["<a>", "<b>"]


async def test_a_packed_answer_contains_no_session_cookie(client: UpstreamClient) -> None:
    async def with_session(_request: web.Request) -> web.Response:
        return web.Response(headers={"Set-Cookie": "session=0123456789abcdef", "ETag": '"1"'})

    async with web_server(with_session) as url:
        packed = (await client.fetch(get(url))).pack()

    assert b"0123456789abcdef" not in packed
    assert Answer.unpack(packed).headers["ETag"] == '"1"'


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"Date: Tue, 15 Nov 1994 08:12:31 GMT\r\n", datetime(1994, 11, 15, 8, 12, 31, tzinfo=UTC)),
        (b"Date: soon\r\n", None),
        (b"", None),
    ],
)
async def test_the_date_of_the_upstream_is_parsed_if_possible(
    client: UpstreamClient, said: bytes, expected: datetime | None
) -> None:
    async with raw_server(says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + said + b"\r\n")) as server:
        answer = await client.fetch(get(server.url))

    assert answer.date == expected


async def test_a_client_works_only_inside_its_context() -> None:
    client = UpstreamClient()
    with pytest.raises(ContractBroken):
        await client.fetch(get("http://127.0.0.1/"))
    async with client:
        pass
    with pytest.raises(ContractBroken):
        await client.fetch(get("http://127.0.0.1/"))


async def test_calls_are_counted_by_host_and_status(client: UpstreamClient) -> None:
    def counted(status: str) -> float:
        return metrics.REGISTRY.get_sample_value("upstream_requests_total", {"host": host, "status": status}) or 0

    host = "127.0.0.1"
    before = [counted("2xx"), counted("4xx")]
    async with web_server(echo) as url:
        await client.fetch(get(url))
        await client.fetch(get(f"{url}/?status=404"))

    assert [counted("2xx"), counted("4xx")] == [before[0] + 1, before[1] + 1]
    assert metrics.REGISTRY.get_sample_value("upstream_request_seconds_count", {"host": host})
