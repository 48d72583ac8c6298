"""To know that somebody waits at the server before the test goes on."""

import re

from tests.waiting import patience
from tidegate.storage.valkey import Key, Valkey


async def until_blocked(valkey: Valkey, key: Key, count: int = 1) -> None:
    """Return when exactly `count` clients block on the server (of a cluster, on the node that has `key`)."""
    async with patience():
        while await _blocked(valkey, key) != count:
            pass  # every look is a round trip


async def _blocked(valkey: Valkey, key: Key) -> int:
    # A script goes to the node of its key.
    text = await valkey.execute("EVAL", "return redis.call('INFO', 'clients')", 1, key)
    found = re.search(rb"blocked_clients:(\d+)", text)
    assert found
    return int(found[1])
