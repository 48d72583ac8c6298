"""The wire that tests cut is cut: also for a connection that was just being put through."""

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
