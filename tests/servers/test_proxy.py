"""The wire that tests cut is cut: also for a connection that was just being put through. A slow one is slow."""

import asyncio

import pytest

from .proxy import Proxy


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("turns", range(8))
async def test_who_was_being_put_through_when_the_wire_was_cut_gets_no_answer(turns: int):
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Proxy(server.sockets[0].getsockname()[1]) as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        for _ in range(turns):
            await asyncio.sleep(0)
        await wire.refuse()
        writer.write(b"is anybody there?")
        try:
            answer = await asyncio.wait_for(reader.read(100), 10)
        except ConnectionError:
            answer = b""
        writer.close()

    assert answer == b""


async def test_on_a_slow_wire_each_answer_is_late_by_as_much_and_none_waits_for_another():
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Proxy(server.sockets[0].getsockname()[1]) as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        wire.delay(0.5)
        began = loop.time()
        came: list[float] = []
        for word in (b"one", b"two"):
            writer.write(word)
            await asyncio.sleep(0.05)  # each in a packet of its own
        for word in (b"one", b"two"):
            assert await reader.readexactly(len(word)) == word
            came.append(loop.time() - began)
        wire.delay(60)
        writer.write(b"three")
        await asyncio.sleep(0.05)
        wire.delay(0)
        assert await asyncio.wait_for(reader.readexactly(5), 5) == b"three"
        writer.close()

    assert 0.5 <= came[0] <= came[1] < 0.95  # one after the other it would be 1.0
