"""Waits that end when they should."""

import asyncio
import socket
import time

import pytest

from tidegate.runtime.waiting import patience


async def test_patience_ends_where_nothing_comes():
    with pytest.raises(TimeoutError):
        async with patience(0.01):
            await asyncio.Event().wait()


async def test_patience_counts_from_the_last_sign_of_life():
    loop = asyncio.get_running_loop()
    began = heard_at = loop.time()

    async def signs() -> None:
        nonlocal heard_at
        for _ in range(3):
            await asyncio.sleep(0.06)
            heard_at = loop.time()

    living = asyncio.create_task(signs())
    with pytest.raises(TimeoutError):
        async with patience(0.1, heard_at=lambda: heard_at):
            await asyncio.Event().wait()

    assert living.done()
    assert loop.time() - began >= 0.25


async def handed_on(reader: asyncio.StreamReader, times: int) -> bytes:
    """What was read, by so many tasks: each needs a turn of the loop."""
    return await (asyncio.create_task(handed_on(reader, times - 1)) if times else reader.read(100))


async def test_what_came_while_this_process_was_held_up_is_taken():
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    with theirs:
        async with patience(0.05):
            theirs.send(b"in time")
            time.sleep(0.2)  # all of us, as on a busy machine
            got = await handed_on(reader, 5)
        writer.close()
        await writer.wait_closed()

    assert got == b"in time"
