"""A limit holds as the upstream sees it: counted there, whatever delays a request between its permit and its sending.

`use_by` and `guard` are long here, so that a busy machine changes nothing.
"""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import psutil
import pytest

from tests.primitives.limiter.exactness import Observed
from tests.processes import start_warm
from tests.systems.snapshots.sending_process import refresh_all
from tests.waiting import simulated_delay, until
from tidegate.primitives.limiter import Limit, LimiterSettings, Priority
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.calls import FailedCall
from tidegate.systems.snapshots.events import FailureReason
from tidegate.systems.snapshots.store import Refreshed

SECOND = timedelta(seconds=1)
LIMIT = 20
SETTINGS = LimiterSettings(
    limits=(
        Limit(name="second", permits=4 * LIMIT, window=SECOND),
        Limit(name="low", permits=LIMIT, window=SECOND, priorities=frozenset({Priority.LOW})),
    ),
    rates=(),
    use_by=timedelta(milliseconds=500),
    guard=SECOND,
    quiet_start=timedelta(0),
)
WITHIN_S = 120


class Wire:
    """An upstream that notes when each request arrived, and for which address."""

    def __init__(self, answer_to: Callable[[str], bytes]) -> None:
        self.asked: list[str] = []
        self.keys: set[bool] = set()
        """Whether requests came with a key."""
        self.observed = Observed([])
        self._answer_to = answer_to

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.observed.arrivals_ns.append(time.monotonic_ns())
        self.asked.append(head.split(" ")[1])
        self.keys.add("x-api-key" in head.lower())
        writer.write(self._answer_to(self.asked[-1]))
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=1000)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def found(_path: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def moved_if_even(path: str) -> bytes:
    """Half of the items are at another address."""
    kind, _, number = path[1:].partition("/")
    if kind == "moved" or int(number) % 2:
        return found(path)
    return b"HTTP/1.1 302 Found\r\nLocation: /moved/%b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % (
        number.encode()
    )


async def test_redirects_count_as_calls(embedded: Valkey):
    wire = Wire(moved_if_even)
    async with asyncio.timeout(WITHIN_S), wire.listening() as url:
        outcomes = await refresh_all(embedded, url, SETTINGS, range(2 * LIMIT))

    assert all(isinstance(outcome, Refreshed) for outcome in outcomes)
    assert len(wire.asked) == 3 * LIMIT, "one request for each call, and one for each redirect"
    assert wire.observed.most_in_any_window() <= LIMIT
    assert wire.keys == {True}, "the same server gets the key"


async def test_a_redirect_loop_ends(embedded: Valkey):
    wire = Wire(lambda path: b"HTTP/1.1 302 Found\r\nLocation: %bx\r\nContent-Length: 0\r\n\r\n" % path.encode())
    async with asyncio.timeout(WITHIN_S), wire.listening() as url:
        [outcome] = await refresh_all(embedded, url, SETTINGS, range(1))

    assert isinstance(outcome, FailedCall)
    assert (outcome.failure.reason, outcome.failure.message) == (
        FailureReason.PARSE_ERROR,
        "the upstream redirected more than 5 times",
    )
    assert len(wire.asked) == 6


@pytest.mark.parametrize("moment", ["checked", pytest.param("begun", marks=pytest.mark.full)])
async def test_a_process_frozen_with_permits_keeps_the_limit(embedded: Valkey, moment: str):
    """It has permits for `LIMIT` requests: some wait for their connections, others did not begin.
    When it goes on, the limiter has new permits. A request whose permit was checked before leaves late, and is counted
    again."""
    wire = Wire(found)
    async with asyncio.timeout(WITHIN_S), wire.listening() as url:
        arguments = [embedded.url, url, SETTINGS.model_dump_json(), str(2 * LIMIT), str(LIMIT // 2), moment]
        process = await start_warm(sys.executable, "-m", "tests.systems.snapshots.sending_process", *arguments)
        try:
            await until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
            await simulated_delay(3)
            process.send_signal(signal.SIGCONT)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert len(wire.asked) == 2 * LIMIT
    assert wire.observed.most_in_any_window() <= LIMIT
