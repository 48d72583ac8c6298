"""Waiting requests of the raw handler: together, in order, and not longer than asked."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.systems.snapshots.deployment import Deployment, until
from tests.systems.snapshots.http_service import serve_snapshots
from tests.systems.snapshots.test_fast_read import ask, comparable
from tests.waiting import patience
from tidegate.http import Binding
from tidegate.http.settings import HttpSettings

WITHIN_S = 60.0


def get(key: int | str, query: str = "") -> bytes:
    return f"GET /v1/snapshots/character/{key}{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def told(body: bytes) -> str:
    return msgspec.json.decode(body)["freshness"]


@asynccontextmanager
async def serving(deployment: Deployment, stopping: asyncio.Event | None = None) -> AsyncGenerator[Binding]:
    stopping = stopping or asyncio.Event()
    settings = HttpSettings(port=0)
    with Binding(settings) as binding:
        task = asyncio.create_task(serve_snapshots(deployment.snapshots, settings, binding).run(stopping))
        yield binding
        stopping.set()
        async with asyncio.timeout(WITHIN_S):
            await task


async def waiting_for(deployment: Deployment, binding: Binding, key: int) -> None:
    """Until a request waits for it in this process, and it has been read for that request."""
    await until(lambda: deployment.snapshots.feed.watchers_of(f"character/{key}"))
    await ask(binding, get(key))


async def test_many_readers_waiting_for_one_subject_are_released_by_one_call(deployment: Deployment):
    async with serving(deployment) as binding:
        waits = [asyncio.create_task(ask(binding, get(7, "?wait=20"))) for _ in range(40)]
        await waiting_for(deployment, binding, 7)
        hasty = [(await ask(binding, get(7)))[0] for _ in range(3)]
        assert deployment.snapshots.feed.watchers_of("character/7") == 1, "one waits for all"
        async with deployment.working():
            released = [(await each)[0] for each in waits]
            [long] = await ask(binding, get(7, "?wait=20.0000"))

    assert [(status, told(body)) for status, _, body in hasty] == [(200, "UPDATING")] * 3
    assert [each for each in released if comparable(each) != comparable(long)] == []
    assert len({headers["x-request-id"] for _, headers, _ in released}) == 40
    assert told(long[2]) == "FRESH"
    assert deployment.sim.calls_of(7) == 1


async def test_a_request_whose_wait_ends_is_answered_and_others_keep_waiting(deployment: Deployment):
    async with serving(deployment) as binding:
        patient = asyncio.create_task(ask(binding, get(7, "?wait=20")))
        await waiting_for(deployment, binding, 7)
        [(status, _, body)] = await ask(binding, get(7, "?wait=1"))
        assert (status, told(body)) == (200, "UPDATING")
        assert not patient.done()
        async with deployment.working():
            [(_, _, body)] = await patient

    assert told(body) == "FRESH"


async def test_requests_pipelined_behind_a_waiting_one_are_answered_after_it(deployment: Deployment):
    async with serving(deployment) as binding:
        reader, writer = await asyncio.open_connection("127.0.0.1", binding.port)
        writer.write(get(7, "?wait=20"))
        await waiting_for(deployment, binding, 7)
        writer.write(get(7) + get("no-number"))
        async with deployment.working(), asyncio.timeout(WITHIN_S):
            statuses = [await reader.readuntil(b"\r\n\r\n")]
            await reader.readexactly(length(statuses[0]))
            statuses.append(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(length(statuses[1]))
            statuses.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    assert [head.split()[1] for head in statuses] == [b"200", b"200", b"422"]


def length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])


async def test_invalid_requests_are_refused_like_on_the_regular_route(deployment: Deployment):
    async with serving(deployment) as binding:
        [short] = await ask(binding, get("no-number", "?wait=5"))
        [long] = await ask(binding, get("no-number", "?wait=5.0000"))
        [(unknown, _, _)] = await ask(binding, get(7).replace(b"character", b"planet"))

    assert (short[0], unknown) == (422, 404)
    assert msgspec.json.decode(short[2])["detail"] == msgspec.json.decode(long[2])["detail"]


async def test_a_closed_connection_is_removed_from_the_waiting_requests(deployment: Deployment):
    async with serving(deployment) as binding:
        _, writer = await asyncio.open_connection("127.0.0.1", binding.port)
        writer.write(get(7, "?wait=20"))
        await waiting_for(deployment, binding, 7)
        writer.close()
        await until(lambda: not deployment.snapshots.feed.watchers_of("character/7"))


async def test_a_stop_answers_waiting_requests(deployment: Deployment):
    stopping = asyncio.Event()
    async with serving(deployment, stopping) as binding:
        wait = asyncio.create_task(ask(binding, get(7, "?wait=20")))
        await waiting_for(deployment, binding, 7)
        stopping.set()
        async with patience():
            [(status, _, body)] = await wait

    assert (status, told(body)) == (200, "UPDATING")


@pytest.mark.parametrize("query", ["?wait=0", "?wait=-1", "?wait=x", "?wait=5&wait=6", "?wait=301", "?other=1", "?"])
async def test_other_queries_use_the_regular_route(deployment: Deployment, query: str):
    async with serving(deployment) as binding:
        [(status, _, _)] = await ask(binding, get(7, query))

    assert status == (200 if query in ("?wait=0", "?") else 422)
