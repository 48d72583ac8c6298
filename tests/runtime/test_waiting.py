"""Waits that end when they should."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from tests.virtual_time import run_virtually
from tests.waiting import blocked_process, simulated_delay
from tidegate.runtime.waiting import time_limit


async def test_patience_ends_without_progress():
    with pytest.raises(TimeoutError):
        async with time_limit(0.01):
            await asyncio.Event().wait()


def test_patience_counts_from_the_last_progress():
    async def scenario(now_s: Callable[[], float]) -> float:
        heard_at = 0.0

        async def signs() -> None:
            nonlocal heard_at
            for _ in range(3):
                await simulated_delay(6)
                heard_at = now_s()

        living = asyncio.create_task(signs())
        with pytest.raises(TimeoutError):
            async with time_limit(10, heard_at=lambda: heard_at):
                await asyncio.Event().wait()

        assert living.done()
        return now_s()

    assert run_virtually(scenario) == 3 * 6 + 10


async def handed_on(reader: asyncio.StreamReader, times: int) -> bytes:
    """What was read, by so many tasks: each needs a turn of the loop."""
    return await (asyncio.create_task(handed_on(reader, times - 1)) if times else reader.read(100))


async def test_progress_during_a_suspension_of_this_process_is_counted():
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    with theirs:
        async with time_limit(0.05):
            theirs.send(b"in time")
            blocked_process(0.2)
            got = await handed_on(reader, 5)
        writer.close()
        await writer.wait_closed()

    assert got == b"in time"
