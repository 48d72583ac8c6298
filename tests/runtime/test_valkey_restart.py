import pytest

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tidegate.core.errors import ValkeyUnavailable
from tidegate.runtime.recoverer import ValkeyRestartDetector
from tidegate.storage.valkey.connection import connected


async def test_the_return_of_a_server_is_reported_once():
    told: list[str] = []
    (port,) = free_ports(1)
    with ValkeyServer(port=port):
        async with Proxy(port) as wire, connected(f"redis://127.0.0.1:{wire.port}") as valkey:
            restart_detector = ValkeyRestartDetector(valkey, tell=[lambda: told.append("look")])
            assert await restart_detector.fire() is None
            assert told == []

            await wire.refuse()
            with pytest.raises(ValkeyUnavailable):
                await valkey.execute("PING")
            with pytest.raises(ValkeyUnavailable):
                await restart_detector.fire()
            assert told == [], "it is not back yet"

            await wire.listen()
            await restart_detector.fire()
            await restart_detector.fire()
            assert told == ["look"]
