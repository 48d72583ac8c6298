"""A stream of its own for every test, and a wire to a server that the test can cut."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tidegate.core.clock import ManualClock
from tidegate.primitives.stream import Stream, StreamSettings
from tidegate.storage.valkey import Valkey


@pytest.fixture
def stream(valkey: Valkey, clock: ManualClock) -> Stream:
    return Stream(valkey, valkey.unit("work"), "jobs", StreamSettings(max_deliveries=3), clock)


class Wire(NamedTuple):
    proxy: Proxy
    valkey: Valkey
    stream: Stream


@pytest.fixture
async def wire(clock: ManualClock) -> AsyncIterator[Wire]:
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with Proxy(port) as proxy:
            valkey = await Valkey.connect(f"redis://127.0.0.1:{proxy.port}")
            yield Wire(proxy, valkey, Stream(valkey, valkey.unit("work"), "jobs", clock=clock))
            await valkey.close()
