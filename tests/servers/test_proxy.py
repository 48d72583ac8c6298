"""The wire that tests cut is cut: also for a connection that was just being put through. A slow one is slow."""

import asyncio

import pytest

from tests.waiting import lasting_at_least, patience, simulated_delay

from .proxy import Proxy


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("turns", range(8))
async def test_a_request_in_progress_when_the_connection_is_cut_gets_no_answer(turns: int):
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Proxy(server.sockets[0].getsockname()[1]) as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        for _ in range(turns):
            await asyncio.sleep(0)
        await wire.refuse()
        writer.write(b"is anybody there?")
        try:
            async with patience():
                answer = await reader.read(100)
        except ConnectionError:
            answer = b""
        writer.close()

    assert answer == b""


async def test_on_a_slow_connection_each_answer_is_delayed_equally_and_waits_for_no_other():
    """One after the other, the answers would take longer than `patience`."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Proxy(server.sockets[0].getsockname()[1]) as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        wire.delay(1)
        words = [b"%03d" % n for n in range(200)]
        with lasting_at_least(1):
            for word in words:
                writer.write(word)
                await simulated_delay(0.001)  # each in a packet of its own
            async with patience():
                assert await reader.readexactly(3 * len(words)) == b"".join(words)
        wire.delay(3600)
        writer.write(b"three")
        await simulated_delay(0.05)
        wire.delay(0)
        async with patience():
            assert await reader.readexactly(5) == b"three"
        writer.close()
