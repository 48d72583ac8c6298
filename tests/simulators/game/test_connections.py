"""Connections of a simulator, on both event loops: order of answers, keep-alive, slow readers, transport faults."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tests.simulators.game.running import SERVING
from tests.simulators.running import running
from tests.waiting import simulated_delay
from tidegate_simulators.game import Behaviour, GameConfig, GameSimulator, LimitSettings, WorldShape

LARGE = 1_000_000
MANY = 60
"""So many answers of this size are more than the kernel takes for a client that does not read."""


class Place(NamedTuple):
    """Where a simulator listens."""

    host: str
    port: int
    key: str

    def request(self, line: str = "GET /v1/characters/5 HTTP/1.1", *headers: str, host: str = "Host: game") -> bytes:
        lines = [line, *([host] if host else []), f"X-Api-Key: {self.key}", *headers]
        return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def serving(loop: str, *, body_bytes: int = 30_000, idle_s: float = 75) -> AsyncGenerator[Place]:
    if loop == "uvloop":
        async with running(SERVING, str(body_bytes), str(idle_s)) as (_, greeting):
            host, port = greeting["url"].removeprefix("http://").split(":")
            yield Place(host, int(port), greeting["api_key"])
        return
    world = WorldShape(missing=0, body_bytes=body_bytes, kept_bytes=8_000)
    behaviour = Behaviour(idle_s=idle_s, hang_s=0, drip_s=0.2)
    config = GameConfig(world=world, limits=LimitSettings(per_second=10**9), behaviour=behaviour)
    async with GameSimulator(config) as simulator:
        host, port = simulator.url.removeprefix("http://").split(":")
        yield Place(host, int(port), simulator.api_key)


class Talk:
    """One connection, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def say_no_more(self) -> None:
        self._writer.write_eof()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.rstrip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split()[1]), headers

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer with its body."""
        status, headers = await self.head()
        return status, headers, await self._reader.readexactly(int(headers.get("content-length", "0")))

    async def answers(self, count: int) -> None:
        """So many answers, one after the other."""
        for _ in range(count):
            await self.answer()

    async def is_over(self) -> bool:
        """Whether the other side ended the connection, in order or not; waits until it says something."""
        try:
            return await self._reader.read(1) == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def talking(place: Place, *, limit: int = 2**16) -> AsyncGenerator[Talk]:
    reader, writer = await asyncio.open_connection(place.host, place.port, limit=limit)
    try:
        yield Talk(reader, writer)
    finally:
        writer.close()


async def report(place: Place) -> dict[str, Any]:
    """What the simulator says about itself, on a connection of its own."""
    async with talking(place) as talk:
        await talk.say(place.request("GET /admin/report HTTP/1.1"))
        return json.loads((await talk.answer())[2])


async def corrupt(place: Place, kind: str) -> None:
    """Let the next call fail."""
    async with talking(place) as talk:
        fault = json.dumps({"kind": kind}).encode()
        await talk.say(place.request("POST /admin/faults HTTP/1.1", f"Content-Length: {len(fault)}") + fault)
        assert (await talk.answer())[0] == 200


on_both_loops = pytest.mark.parametrize("loop", ["asyncio", pytest.param("uvloop", marks=pytest.mark.full)])


@on_both_loops
async def test_one_connection_serves_many_calls(loop: str):
    async with serving(loop) as place, talking(place) as talk:
        for _ in range(3):
            await talk.say(place.request())
            status, headers, body = await talk.answer()
            assert (status, len(body), "connection" in headers) == (200, 30_000, False)
            assert json.loads(body)["id"] == 5


@on_both_loops
async def test_pipelined_calls_are_answered_in_order(loop: str):
    async with serving(loop) as place, talking(place) as talk:
        lines = [f"GET /v1/characters/{subject} HTTP/1.1" for subject in range(1, 31)]
        await talk.say(b"".join(place.request(line) for line in lines))

        assert [json.loads((await talk.answer())[2])["id"] for _ in lines] == list(range(1, 31))


@on_both_loops
async def test_a_head_request_is_answered_without_a_body(loop: str):
    async with serving(loop) as place, talking(place) as talk:
        await talk.say(place.request("HEAD /v1/characters/5 HTTP/1.1") + place.request())
        status, headers = await talk.head()
        assert (status, headers["content-length"]) == (200, "30000")

        assert (await talk.answer())[0] == 200, "nothing lies between the two"


@on_both_loops
async def test_the_connection_closes_when_the_client_requests_it(loop: str):
    async with serving(loop) as place, talking(place) as talk:
        await talk.say(place.request("GET /v1/characters/5 HTTP/1.1", "Connection: Close"))
        status, _, body = await talk.answer()

        assert (status, len(body)) == (200, 30_000)
        assert await talk.is_over()


@on_both_loops
async def test_calls_pipelined_behind_a_slow_one_are_all_answered(loop: str):
    """Far more of them than are read at once."""
    async with serving(loop) as place, talking(place) as talk:
        await corrupt(place, "slow")
        sending = asyncio.create_task(talk.say(place.request() + place.request("HEAD / HTTP/1.1") * 15_000))
        assert (await talk.answer())[0] == 200

        assert {(await talk.head())[0] for _ in range(15_000)} == {404}
        await sending


@on_both_loops
@pytest.mark.parametrize("target", ["http://game/v1/characters/6?x=1", "/v1/characters/%36", "/v1/characters/006"])
async def test_equivalent_spellings_of_a_path_are_accepted(loop: str, target: str):
    async with serving(loop) as place, talking(place) as talk:
        await talk.say(place.request(f"GET {target} HTTP/1.1"))

        assert json.loads((await talk.answer())[2])["id"] == 6


@on_both_loops
async def test_a_client_that_does_not_read_gets_no_further_answer(loop: str):
    """The account shows it: of the calls that were sent at once, many are not even looked at."""
    async with serving(loop, body_bytes=LARGE) as place, talking(place, limit=1_024) as talk:
        await talk.say(place.request() * MANY)
        assert 0 < (await report(place))["calls"] < MANY, "others are served meanwhile"

        for _ in range(MANY):
            status, _, body = await talk.answer()
            assert (status, len(body)) == (200, LARGE)


@on_both_loops
async def test_a_connection_in_use_is_never_closed(loop: str):
    async with serving(loop, idle_s=1.5) as place, talking(place) as talk:
        for _ in range(6):
            await talk.say(place.request())
            assert (await talk.answer())[0] == 200
            await simulated_delay(0.3)


@on_both_loops
@pytest.mark.parametrize("kind", ["reset", "timeout"])
async def test_a_fault_closes_the_connection_and_drops_pipelined_calls(loop: str, kind: str):
    async with serving(loop) as place, talking(place) as talk:
        await corrupt(place, kind)
        await talk.say(place.request() + place.request())

        with pytest.raises(ConnectionResetError):
            await talk.head()
        assert (await report(place))["by_outcome"] == {kind: 1}
