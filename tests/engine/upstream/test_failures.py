"""Every way in which a call can fail, and what is then known of it."""

import asyncio
import gc
import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from aiohttp import web

from tests.engine.upstream.servers import TOKEN, Behaviour, close, get, raw_server, reset, says, web_server
from tests.servers.ports import free_port
from tests.waiting import look_again, patience
from tidegate.core.errors import Unavailable
from tidegate.engine.upstream import (
    ConnectFailed,
    ConnectionBroken,
    Request,
    TimedOut,
    TooLarge,
    Truncated,
    Undecodable,
    UpstreamClient,
    UpstreamFailed,
    UpstreamSettings,
)
from tidegate.engine.upstream.exchange import Body, BodyTooLarge
from tidegate.engine.upstream.messages import split_url

BRIEF = timedelta(seconds=0.15)
LIMITS = b"X-RateLimit-Remaining: 41\r\n"
BOMB = gzip.compress(b"\0" * 50_000_000)


async def failure_of(client: UpstreamClient, request: Request) -> UpstreamFailed:
    with pytest.raises(UpstreamFailed) as caught:
        await client.fetch(request)
    return caught.value


async def test_a_refused_connection_counts_as_not_sent(client: UpstreamClient) -> None:
    failure = await failure_of(client, get(f"http://127.0.0.1:{free_port()}/"))

    assert isinstance(failure, ConnectFailed)
    assert failure.was_sent is False
    assert failure.head is None


async def test_an_unresolvable_host_counts_as_not_sent(client: UpstreamClient) -> None:
    failure = await failure_of(client, get("http://nowhere.invalid/"))

    assert isinstance(failure, ConnectFailed)
    assert failure.was_sent is False


async def test_a_failed_tls_handshake_counts_as_not_sent(client: UpstreamClient) -> None:
    async def plain(_request: web.Request) -> web.Response:
        return web.Response()

    async with web_server(plain) as url:
        failure = await failure_of(client, get(url.replace("http:", "https:")))

    assert isinstance(failure, ConnectFailed)
    assert failure.was_sent is False


@pytest.mark.parametrize("end", [close, reset])
async def test_a_connection_closed_without_response_has_an_unknown_outcome(
    client: UpstreamClient, end: Callable[[asyncio.StreamWriter], None]
) -> None:
    async with raw_server(says(then=end)) as server:
        failure = await failure_of(client, get(server.url))

    assert isinstance(failure, ConnectionBroken)
    assert failure.was_sent is None


@pytest.mark.parametrize("end", [close, reset])
async def test_no_request_is_sent_twice(client: UpstreamClient, end: Callable[[asyncio.StreamWriter], None]) -> None:
    """Many clients repeat a GET by themselves when a connection breaks; there would be no permit for that call."""
    async with raw_server(says(then=end)) as server:
        await failure_of(client, get(server.url))
        await server.closed.wait()

        assert len(server.requests) == 1


async def test_no_request_is_sent_twice_on_a_reused_connection(client: UpstreamClient) -> None:
    requests: list[bytes] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with raw_server(answer_once) as server:
        assert (await client.fetch(get(server.url))).body == b"ok"
        failure = await failure_of(client, get(server.url))

        assert isinstance(failure, ConnectionBroken)
        assert failure.was_sent is None
        assert (server.connections, len(requests)) == (1, 1)


TRUNCATIONS = {
    "fewer bytes than announced": says(
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n" + LIMITS + b"\r\n[1, 2", then=close
    ),
    "reset within the body": says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n" + LIMITS + b"\r\n[1, 2", then=reset),
    "no last chunk": says(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + LIMITS + b"\r\n5\r\n[1, 2\r\n", then=close
    ),
    "half a gzip stream": says(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n" + LIMITS + b"\r\n",
        gzip.compress(b"[1, 2, 3]" * 100)[:20],
    ),
    "half a deflate stream": says(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: 20\r\n" + LIMITS + b"\r\n",
        zlib.compress(b"[1, 2, 3]" * 100)[:20],
    ),
}


@pytest.mark.parametrize("behaviour", TRUNCATIONS.values(), ids=TRUNCATIONS.keys())
async def test_an_incomplete_body_still_has_headers(client: UpstreamClient, behaviour: Behaviour) -> None:
    """The call counted, and what the headers say of the allowance is true."""
    async with raw_server(behaviour) as server:
        failure = await failure_of(client, get(server.url))

    assert isinstance(failure, Truncated)
    assert failure.was_sent is True
    assert failure.head is not None
    assert (failure.head.status, failure.head.headers["x-ratelimit-remaining"]) == (200, "41")


UNREADABLE = {
    "not gzip": says(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 18\r\n\r\n[1, 2, 3][1, 2, 3]"),
    "not deflate": says(b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: 9\r\n\r\n\xff" + b"x" * 8),
    "not asked for": says(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nxx"),
    "twice": says(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: 2\r\n\r\nxx"),
    "more after its end": says(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % (len(gzip.compress(b"a")) + 20),
        gzip.compress(b"a") + b"more" * 5,
    ),
}


@pytest.mark.parametrize("behaviour", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_a_body_that_does_not_match_its_encoding_is_refused(client: UpstreamClient, behaviour: Behaviour) -> None:
    async with raw_server(behaviour) as server:
        failure = await failure_of(client, get(server.url))

    assert isinstance(failure, Undecodable)
    assert failure.was_sent is True
    assert failure.head is not None


@pytest.mark.parametrize("said", [b"220 mail.example.org ESMTP\r\n", b"HTTP/1.1 200 OK\r\nBroken header\r\n\r\n"])
async def test_a_malformed_response_is_refused(client: UpstreamClient, said: bytes) -> None:
    async with raw_server(says(said, then=close)) as server:
        failure = await failure_of(client, get(server.url))

    assert isinstance(failure, Undecodable)
    assert failure.was_sent is None


async def test_a_body_with_a_too_large_content_length_is_not_read() -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n" + LIMITS + b"\r\n"
    async with raw_server(says(said)) as server, UpstreamClient(UpstreamSettings(largest_body=1000)) as client:
        failure = await failure_of(client, get(server.url))
        await server.closed.wait()

    assert isinstance(failure, TooLarge)
    assert failure.head is not None
    assert failure.head.headers["x-ratelimit-remaining"] == "41"


async def test_an_endless_body_is_refused_at_the_limit() -> None:
    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            await writer.drain()

    async with raw_server(endless) as server, UpstreamClient(UpstreamSettings(largest_body=100_000)) as client:
        failure = await failure_of(client, get(server.url))
        await server.closed.wait()

    assert isinstance(failure, TooLarge)


@pytest.mark.parametrize(("most", "fits"), [(5000, True), (4999, False)])
async def test_the_size_limit_is_exact(most: int, fits: bool) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"x" * 5000), headers={"Content-Encoding": "gzip"})

    async with web_server(answer) as url, UpstreamClient(UpstreamSettings(largest_body=most)) as client:
        if fits:
            assert len((await client.fetch(get(url))).body) == 5000
        else:
            assert isinstance(await failure_of(client, get(url)), TooLarge)


PACKED = gzip.compress(b"x" * 9_000)


@pytest.mark.parametrize(
    "said",
    [
        b"Content-Length: 2000\r\n\r\n" + b"x" * 500,
        b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2_000,
        b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED,
    ],
    ids=["cut off", "too large", "a bomb"],
)
async def test_the_body_of_a_failed_call_is_freed_at_once(said: bytes) -> None:
    """Not by the next garbage collection, which is rare: many large bodies would be kept until then."""

    def bodies() -> list[Body]:
        return [each for each in gc.get_objects() if isinstance(each, Body)]

    others = bodies()
    gc.disable()
    try:
        async with (
            raw_server(says(b"HTTP/1.1 200 OK\r\n" + said, then=close)) as server,
            UpstreamClient(UpstreamSettings(largest_body=1_500)) as client,
        ):
            failure = await failure_of(client, get(server.url))
            await asyncio.sleep(0)  # the step of this task that got the error has ended
            assert bodies() == others
    finally:
        gc.enable()
    assert isinstance(failure, TooLarge | Truncated)


async def test_a_compression_bomb_is_refused_before_it_expands() -> None:
    assert len(BOMB) < 60_000

    async def bomb(_request: web.Request) -> web.Response:
        return web.Response(body=BOMB, headers={"Content-Encoding": "gzip"})

    async with web_server(bomb) as url, UpstreamClient(UpstreamSettings(largest_body=1_000_000)) as client:
        failure = await failure_of(client, get(url))

    assert isinstance(failure, TooLarge)


def test_a_compression_bomb_uses_no_more_memory_than_a_plain_body() -> None:
    body = Body("gzip", 1_000_000)
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        body.feed(BOMB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 4_000_000


async def test_a_tls_handshake_timeout_counts_as_not_sent() -> None:
    """The server takes the connection and then says nothing to our hello."""
    async with raw_server(says()) as server, UpstreamClient(UpstreamSettings(connect_timeout=BRIEF)) as client:
        failure = await failure_of(client, get(server.url.replace("http:", "https:")))

    assert isinstance(failure, TimedOut)
    assert (failure.phase, failure.was_sent) == ("connect", False)


async def test_a_timeout_of_the_connection_pool_counts_as_not_sent() -> None:
    limits = UpstreamSettings(connections_per_host=1, total_timeout=BRIEF)
    async with raw_server(says(b"HTTP/1.1 200 OK\r\n\r\n")) as server, UpstreamClient(limits) as client:
        pool = client._pool  # pyright: ignore[reportPrivateUsage]
        assert pool
        async with pool.connection(split_url(server.url)[0], None):  # holds the only connection
            failure = await failure_of(client, get(server.url))

        assert isinstance(failure, TimedOut)
        assert (failure.phase, failure.was_sent) == ("connect", False)
        assert server.connections == 1


LIMITS_OF_SILENCE = ({"read_timeout": BRIEF}, {"total_timeout": 5 * BRIEF})
"""The connection counts too in the second, and takes its time on a busy machine."""


@pytest.mark.parametrize("limits", LIMITS_OF_SILENCE)
async def test_a_read_timeout_before_the_response_has_an_unknown_outcome(limits: dict[str, timedelta]) -> None:
    async with raw_server(says()) as server, UpstreamClient(UpstreamSettings.model_validate(limits)) as client:
        failure = await failure_of(client, get(server.url))
        await server.closed.wait()

    assert isinstance(failure, TimedOut)
    assert (failure.phase, failure.was_sent, failure.head) == ("answer", None, None)


@pytest.mark.parametrize("limits", LIMITS_OF_SILENCE)
async def test_a_read_timeout_within_the_body_still_has_headers(limits: dict[str, timedelta]) -> None:
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n" + LIMITS + b"\r\nabc"
    settings = UpstreamSettings.model_validate(limits)
    async with raw_server(says(said)) as server, UpstreamClient(settings) as client:
        failure = await failure_of(client, get(server.url))
        await server.closed.wait()

    assert isinstance(failure, TimedOut)
    assert (failure.phase, failure.was_sent) == ("body", True)
    assert failure.head is not None
    assert failure.head.headers["x-ratelimit-remaining"] == "41"


async def test_a_slow_body_is_ended_by_the_total_timeout() -> None:
    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await look_again()

    settings = UpstreamSettings(read_timeout=timedelta(seconds=5), total_timeout=BRIEF)
    async with raw_server(drip) as server, UpstreamClient(settings) as client:
        failure = await failure_of(client, get(server.url))
        await server.closed.wait()

    assert isinstance(failure, TimedOut)
    assert failure.phase == "body"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"])
async def test_cancellation_closes_the_connection(client: UpstreamClient, said: bytes) -> None:
    spoken = asyncio.Event()

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        spoken.set()

    async with raw_server(speak) as server:
        fetching = asyncio.create_task(client.fetch(get(server.url)))
        await spoken.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        async with patience():
            await server.closed.wait()


async def test_after_failures_the_pool_is_fully_usable() -> None:
    healthy = False

    async def moody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"ok" if healthy else b"o"))
        if not healthy:
            writer.close()

    async with raw_server(moody) as server, UpstreamClient(UpstreamSettings(connections_per_host=2)) as client:
        for _ in range(5):
            assert isinstance(await failure_of(client, get(server.url)), Truncated)
        healthy = True
        assert (await client.fetch(get(server.url))).body == b"ok"


FAILING: dict[str, Behaviour] = {"broken": says(then=reset), **TRUNCATIONS, **UNREADABLE, "garbage": says(b"x\r\n\r\n")}


@pytest.mark.parametrize("behaviour", FAILING.values(), ids=FAILING.keys())
async def test_no_failure_contains_the_token(client: UpstreamClient, behaviour: Behaviour) -> None:
    async with raw_server(behaviour) as server:
        failure = await failure_of(client, get(f"{server.url}/?access_token={TOKEN}"))

    seen: list[BaseException] = [failure]
    while (inner := seen[-1].__cause__ or seen[-1].__context__) is not None:
        seen.append(inner)
    assert [each for each in seen if TOKEN in f"{each} {each!r} {vars(each)}"] == []
    assert "a.test: GET http://127.0.0.1" in str(failure)


def test_retryable_failures_are_marked_as_such() -> None:
    again = {ConnectFailed, TimedOut, ConnectionBroken, Truncated, Undecodable}

    assert {kind for kind in UpstreamFailed.__subclasses__() if issubclass(kind, Unavailable)} == again


@pytest.mark.parametrize(
    ("url", "summary"),
    [
        ("http://127.0.0.1:{port}/secret/path", "a.test: no connection: Connection refused"),
        ("https://127.0.0.1:{port}/secret/path", "a.test: no connection: Connection refused"),
        ("http://nowhere.invalid/secret/path", "a.test: no connection: the name of the host cannot be resolved"),
    ],
)
async def test_a_failure_summary_contains_no_url(client: UpstreamClient, url: str, summary: str):
    failure = await failure_of(client, get(url.format(port=free_port())))

    assert failure.summary == summary
    assert "/secret/path" in str(failure), "operators see the address in the log"
