"""Closing a client leaves no connection open, whatever its commands do at that moment."""

import asyncio

import pytest

from tests.open_connections import open_sockets
from tidegate.core.errors import ValkeyUnavailable
from tidegate.storage.valkey import Valkey

CANCELLED_AFTER = range(1, 12)
"""Turns of the event loop. In the first one closing begins; the last one comes after its end."""


async def test_commands_in_progress_finish_and_later_ones_open_no_connection(valkey_url: str):
    before = open_sockets()
    valkey = await Valkey.connect(valkey_url)
    key = valkey.unit("closed").key("list")
    reads = [asyncio.create_task(valkey.execute_blocking("BLPOP", key, 60, within_s=60)) for _ in range(3)]
    repeats = [asyncio.create_task(repeat_until_closed(valkey)) for _ in range(5)]
    await valkey.execute("PING")

    await valkey.close()
    ends = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(end, ValkeyUnavailable) for end in ends)
    await asyncio.gather(*repeats)
    with pytest.raises(ValkeyUnavailable, match="was closed"):
        await valkey.pipeline([("GET", key)])
    with pytest.raises(ValkeyUnavailable, match="was closed"):
        await valkey.ping()

    assert open_sockets() == before


@pytest.mark.parametrize("turns", CANCELLED_AFTER)
async def test_closing_is_completed_when_it_is_cancelled(valkey_url: str, turns: int):
    before = open_sockets()
    valkey = await Valkey.connect(valkey_url)
    key = valkey.unit("closed").key("list")
    read = asyncio.create_task(valkey.execute_blocking("BLPOP", key, 60, within_s=60))
    await valkey.execute("PING")

    closing = asyncio.create_task(valkey.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, read, return_exceptions=True)

    assert open_sockets() == before


async def repeat_until_closed(valkey: Valkey) -> None:
    for _ in range(1_000):
        try:
            await valkey.execute("GET", valkey.unit("closed").key("value"))
        except ValkeyUnavailable as error:
            if "was closed" in str(error):
                return
    pytest.fail("commands of a closed client are still sent")
