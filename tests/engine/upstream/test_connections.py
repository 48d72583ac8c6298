"""When a connection is used again, when it is closed, and what is read from it."""

import asyncio
import socket
import struct
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from tests.engine.upstream.servers import RawServer, close, get, raw_server, reset, says, web_server
from tests.waiting import patience
from tidegate.engine.upstream import (
    Answer,
    ConnectFailed,
    Request,
    Truncated,
    Undecodable,
    UpstreamClient,
    UpstreamFailed,
    UpstreamSettings,
)
from tidegate.engine.upstream.connections import ConnectionPool, UpstreamConnection

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def answers_of(said: bytes, *, requests: int = 2) -> tuple[list[bytes], RawServer]:
    """Send requests to a server that answers each with `said`, and return the bodies."""

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(said)
            await reader.readuntil(b"\r\n\r\n")

    async with raw_server(behaviour) as server, UpstreamClient() as client, patience():
        return [(await client.fetch(get(server.url))).body for _ in range(requests)], server


async def test_a_complete_answer_leaves_the_connection_open():
    bodies, server = await answers_of(OK)

    assert (bodies, server.connections) == ([b"ok", b"ok"], 1)


@pytest.mark.parametrize(
    "said",
    [
        OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        OK.replace(b"HTTP/1.1", b"HTTP/1.0"),
        OK + b"more",
        OK + OK,
    ],
    ids=["says close", "HTTP/1.0", "bytes behind the body", "a second answer"],
)
async def test_a_connection_that_may_be_out_of_step_is_not_used_again(said: bytes):
    bodies, server = await answers_of(said)

    assert (bodies, server.connections) == ([b"ok", b"ok"], 2)


async def test_an_unrequested_answer_closes_the_idle_connection(client: UpstreamClient):
    go_on = asyncio.Event()

    async def late(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await go_on.wait()
        writer.write(OK.replace(b"ok", b"no"))

    async with raw_server(late) as server:
        assert (await client.fetch(get(server.url))).body == b"ok"
        go_on.set()
        async with patience():
            await server.closed.wait()
        assert (await client.fetch(get(server.url))).body == b"ok"

    assert server.connections == 2


async def test_informational_answers_are_skipped():
    bodies, server = await answers_of(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + OK)

    assert (bodies, server.connections) == ([b"ok", b"ok"], 1)


async def test_a_body_without_a_length_ends_with_the_connection(client: UpstreamClient):
    async with raw_server(says(b"HTTP/1.1 200 OK\r\n\r\n", b"to ", b"the end", then=close)) as server:
        assert (await client.fetch(get(server.url))).body == b"to the end"


async def test_a_reset_does_not_complete_a_body_without_a_length(client: UpstreamClient):
    begun = asyncio.Event()

    async def broken(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nto the")
        await writer.drain()
        await begun.wait()
        # With a linger time of 0, closing sends a reset.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset(writer)

    async with raw_server(broken) as server:
        fetching = asyncio.create_task(client.fetch(get(server.url)))
        begun.set()
        with pytest.raises(Truncated):
            await fetching


async def test_trailers_do_not_change_the_headers(client: UpstreamClient):
    said = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Remaining: 1\r\n\r\n2\r\nok\r\n0\r\nX-Remaining: 9\r\n\r\n"
    )
    async with raw_server(says(said)) as server:
        answer = await client.fetch(get(server.url))

    assert (answer.body, answer.headers.getall("X-Remaining")) == (b"ok", ["1"])


@pytest.mark.parametrize(
    ("begin", "failure"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Long: ", Undecodable),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Long: ", Truncated),
    ],
    ids=["in front of the body", "behind the body"],
)
async def test_headers_without_end_are_refused(client: UpstreamClient, begin: bytes, failure: type[UpstreamFailed]):
    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with raw_server(endless) as server:
        with pytest.raises(failure):
            await client.fetch(get(server.url))
        async with patience():
            await server.closed.wait()


async def test_a_connection_after_a_head_request_is_closed(client: UpstreamClient):
    async with raw_server(says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")) as server:
        answer = await client.fetch(Request(method="HEAD", url=server.url, purpose="test"))
        async with patience():
            await server.closed.wait()

    assert answer.body == b""


async def test_idle_connections_are_closed_after_a_while():
    settings = UpstreamSettings(keep_alive=timedelta(milliseconds=20))
    async with raw_server(says(OK)) as server, UpstreamClient(settings) as client:
        await client.fetch(get(server.url))
        async with patience():
            await server.closed.wait()


async def test_the_connection_that_was_idle_longest_makes_room_for_another_host():
    client = UpstreamClient(UpstreamSettings(connections=1))
    async with raw_server(says(OK)) as first, raw_server(says(OK)) as second, client:
        await client.fetch(get(first.url))
        await client.fetch(get(second.url))
        async with patience():
            await first.closed.wait()
        assert not second.closed.is_set()


def pool_of(client: UpstreamClient) -> ConnectionPool:
    pool = client._pool  # pyright: ignore[reportPrivateUsage]
    assert pool is not None
    return pool


def idle_connections(client: UpstreamClient) -> list[UpstreamConnection]:
    hosts = pool_of(client)._hosts.values()  # pyright: ignore[reportPrivateUsage]
    return [connection for host in hosts for connection in host.idle]


async def keep_answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(OK)
        await reader.readuntil(b"\r\n\r\n")


async def test_connections_that_servers_closed_make_room_for_others():
    client = UpstreamClient(UpstreamSettings(connections=3))
    async with (
        raw_server(says(OK, then=close)) as closing,
        raw_server(keep_answering) as kept,
        raw_server(keep_answering) as other,
        client,
        patience(),
    ):
        for _ in range(4):
            await client.fetch(get(closing.url))
            while any(connection.is_usable for connection in idle_connections(client)):
                await asyncio.sleep(0)
        for server in (kept, other, kept):
            await client.fetch(get(server.url))

    assert kept.connections == 1


async def test_connections_that_are_being_opened_count():
    client = UpstreamClient(UpstreamSettings(connections=3))
    asked, answer = asyncio.Semaphore(0), asyncio.Event()

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.release()
        await answer.wait()
        writer.write(OK)

    async with raw_server(hold) as first, raw_server(hold) as second, client, patience():
        idle = [asyncio.create_task(client.fetch(get(first.url))) for _ in range(2)]
        for _ in idle:
            await asked.acquire()
        answer.set()
        await asyncio.gather(*idle)
        answer.clear()
        busy = [asyncio.create_task(client.fetch(get(second.url))) for _ in range(3)]
        for _ in busy:
            await asked.acquire()
        assert not idle_connections(client)
        answer.set()
        await asyncio.gather(*busy)


async def test_a_connection_that_fails_to_open_does_not_count():
    client = UpstreamClient(UpstreamSettings(connections=1))
    async with raw_server(keep_answering) as server, client, patience():
        for _ in range(2):
            with pytest.raises(UpstreamFailed):
                await client.fetch(get("http://nowhere.invalid/"))
        await client.fetch(get(server.url))
        assert pool_of(client)._open == 1  # pyright: ignore[reportPrivateUsage]


async def test_a_connection_in_use_is_closed_when_the_client_was_closed():
    asked, answer = asyncio.Event(), asyncio.Event()

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answer.wait()
        writer.write(OK)

    async with raw_server(hold) as server, patience():
        async with UpstreamClient() as client:
            fetching = asyncio.create_task(client.fetch(get(server.url)))
            await asked.wait()
        answer.set()
        assert (await fetching).body == b"ok"
        await server.closed.wait()


async def test_no_request_is_sent_on_a_connection_that_the_server_has_ended():
    async with raw_server(says(OK)) as server, UpstreamClient() as client, patience():
        await client.fetch(get(server.url))
        [connection] = idle_connections(client)
        connection.eof_received()  # the transport calls `connection_lost` in a later iteration of the loop
        assert (await client.fetch(get(server.url))).body == b"ok"

    assert server.connections == 2


async def test_requests_that_need_the_same_address_share_one_lookup(monkeypatch: pytest.MonkeyPatch):
    looked_up: list[Any] = []
    look_up = socket.getaddrinfo

    def counted(host: Any, *others: Any, **options: Any) -> Any:
        looked_up.append(host)
        return look_up(host, *others, **options)

    async with raw_server(says(OK)) as server, UpstreamClient() as client, patience():
        monkeypatch.setattr(socket, "getaddrinfo", counted)
        url = f"http://localhost:{server.port}/"
        first = asyncio.create_task(client.fetch(get(url)))
        others = [asyncio.create_task(client.fetch(get(url))) for _ in range(9)]
        await asyncio.sleep(0)
        first.cancel()  # the lookup serves the others
        answers = await asyncio.gather(*others)

    assert [answer.body for answer in answers] == [b"ok"] * 9
    assert looked_up.count("localhost") == 1


async def test_a_lookup_that_fails_fails_all_its_requests_and_is_not_remembered(client: UpstreamClient):
    for _ in range(2):
        failures = await asyncio.gather(
            *(client.fetch(get("http://nowhere.invalid/")) for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in failures] == [ConnectFailed] * 3


async def test_requests_to_many_hosts_share_the_limit_of_all_connections():
    inside = most_inside = 0

    async def note(_request: web.Request) -> web.Response:
        nonlocal inside, most_inside
        inside += 1
        most_inside = max(inside, most_inside)
        await asyncio.sleep(0)
        inside -= 1
        return web.Response(text="ok")

    limited = UpstreamSettings(connections=3)
    async with web_server(note) as one, web_server(note) as two, UpstreamClient(limited) as client:
        await asyncio.gather(*(client.fetch(get((one, two)[n % 2])) for n in range(40)))

    assert most_inside <= 3


async def test_a_request_that_is_cancelled_while_it_waits_keeps_the_limit():
    asked, answer = asyncio.Event(), asyncio.Event()

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answer.wait()
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    async with raw_server(hold) as server, UpstreamClient(UpstreamSettings(connections_per_host=1)) as client:
        first = asyncio.create_task(client.fetch(get(server.url)))
        await asked.wait()
        waiting = asyncio.create_task(client.fetch(get(server.url)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        answer.set()
        assert (await first).body == b"ok"
        assert (await client.fetch(get(server.url))).body == b"ok"


async def test_nothing_is_kept_of_a_host_that_is_not_used_any_more():
    settings = UpstreamSettings(keep_alive=timedelta(milliseconds=1))
    async with raw_server(says(OK, then=close)) as server, UpstreamClient(settings) as client:
        await client.fetch(get(server.url))
        with pytest.raises(UpstreamFailed):
            await client.fetch(get("http://nowhere.invalid/"))
        pool = pool_of(client)
        async with patience():
            while pool._hosts:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0)


async def test_a_request_has_one_host_and_its_length():
    async with raw_server(says(OK)) as server, UpstreamClient() as client:
        await client.fetch(Request(url=f"{server.url}?a=1#part", method="POST", purpose="test"))

    lines = server.requests[0].split(b"\r\n")
    assert lines[0] == b"POST /?a=1 HTTP/1.1"
    assert lines[1] == b"Host: 127.0.0.1:%d" % server.port
    assert b"Content-Length: 0" in lines


def test_a_port_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="url"):
        Request(url="http://example.org:65536/", purpose="test")


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b'"\xc3\xa9"', '"é"'),
        (b'"\xff\xfe"', '"\ufffd\ufffd"'),
        (b'"\xed\xa0\x80"', '"\ufffd\ufffd\ufffd"'),
        (b'"a\0b"', '"ab"'),
    ],
    ids=["UTF-8", "other bytes", "half of a surrogate pair", "null character"],
)
async def test_a_header_is_text_that_can_be_stored(client: UpstreamClient, sent: bytes, text: str):
    async with raw_server(says(OK.replace(b"\r\n\r\n", b"\r\nETag: %b\r\n\r\n" % sent))) as server:
        answer = await client.fetch(get(server.url))

    assert answer.headers["ETag"] == text
    assert Answer.unpack(answer.pack()).headers["ETag"] == text
