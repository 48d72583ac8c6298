"""A permit is used when the request leaves, and not when it is asked for."""

import asyncio

import pytest
from aiohttp import web

from tests.engine.upstream.servers import get, web_server
from tidegate.core.errors import GrantVoid
from tidegate.engine import metrics
from tidegate.engine.upstream import UpstreamClient, UpstreamSettings
from tidegate.engine.upstream.client import SentMeter
from tidegate.primitives.limiter import Grant, Priority


def sent_by(client: str) -> dict[str, float]:
    [family] = metrics.UPSTREAM_REQUESTS_SENT.collect()
    counted = [sample for sample in family.samples if sample.name.endswith("_total")]
    return {each.labels["spends"]: each.value for each in counted if each.labels["client"] == client}


class Held:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.arrived, self.answers = asyncio.Event(), asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        self.arrived.set()
        await self.answers.wait()
        return web.Response(text="done")


async def test_a_request_that_waited_too_long_for_its_connection_is_not_sent():
    held, now_ms = Held(), 0.0
    one_connection = UpstreamSettings(connections_per_host=1)
    async with web_server(held.answer) as url, UpstreamClient(one_connection, name="held") as client:
        grants = [Grant(Priority.LOW, 1, ends, 0, stopwatch=lambda: now_ms) for ends in (50.0, 50.0, 2000.0)]
        first = asyncio.create_task(client.fetch(get(f"{url}/first"), grants[0]))
        await held.arrived.wait()
        late = asyncio.create_task(client.fetch(get(f"{url}/late"), grants[1]))
        await asyncio.sleep(0)
        now_ms = 1000.0
        held.answers.set()

        assert (await first).body == b"done"
        with pytest.raises(GrantVoid, match="expired 950 ms ago"):
            await late
        assert (await client.fetch(get(f"{url}/again"), grants[2])).body == b"done"

    assert held.asked == ["/first", "/again"], "what was not sent did not arrive"
    assert sent_by("held") == {"low": 2}, "and was not counted"


async def test_an_unused_connection_serves_the_next_request():
    held, peers = Held(), set[object]()
    held.answers.set()

    async def note_peer(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return await held.answer(request)

    async with web_server(note_peer) as url, UpstreamClient(name="kept") as client:
        await client.fetch(get(f"{url}/first"))
        with pytest.raises(GrantVoid):
            await client.fetch(get(f"{url}/void"), Grant(Priority.HIGH, 1, 0.0, 0))
        await client.fetch(get(f"{url}/last"))

    assert (held.asked, len(peers)) == (["/first", "/last"], 1)
    assert sent_by("kept") == {"none": 2, "high": 0}


def test_the_peak_is_the_maximum_per_second_of_the_last_minute():
    now_ms = 1_000_000.0
    meter = SentMeter(lambda: now_ms)
    assert meter.peak() == 0
    for wait_ms, requests in ((0, 3), (950, 4), (1000, 2), (900, 1)):
        now_ms += wait_ms
        for _ in range(requests):
            meter.note()
    assert meter.peak() == 7
    now_ms += 59_000
    assert meter.peak() == 3
    now_ms += 10_000
    assert meter.peak() == 0
