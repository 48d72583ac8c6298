"""The servers of the tests themselves: they end with the process that started them, and hide nothing."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from tests.servers.valkey import ServerMissing, leftover_keys, redis_binary
from tidegate.storage.valkey import Valkey

ROOT = Path(__file__).parents[2]
START_ALL = """
import sys
from redis import Redis
from tests.servers.valkey import Cluster, Embedded, ValkeyServer
servers = [Embedded(), *(cluster := Cluster()).nodes, ValkeyServer()]
print(*(Redis.from_url(server.url).info("server")["process_id"] for server in servers), flush=True)
sys.stdin.read()
"""


@pytest.mark.crash
async def test_servers_end_with_the_process_that_started_them_even_when_it_is_killed():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", START_ALL),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout
    while not (line := await process.stdout.readline()).replace(b" ", b"").strip().isdigit():
        assert line, "it fell"
    servers = [psutil.Process(int(pid)) for pid in line.split()]
    assert len(servers) == 5
    process.kill()
    await process.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, servers, timeout=10)
    assert alive == []


def test_a_machine_without_redis_is_reported_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissing, match="make services"):
        redis_binary()
    impostor = tmp_path / "redis-server"
    impostor.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0'\n")
    impostor.chmod(0o755)
    with pytest.raises(ServerMissing, match=r"Redis 6\.2\.14"):
        redis_binary()


async def test_leftover_keys_are_those_of_the_unit_with_their_time_to_live(valkey: Valkey):
    unit, other = valkey.unit("a[*]?\\b"), valkey.unit("a[*]?\\bc")
    await valkey.execute("SET", unit.key("for ever"), 1)
    await valkey.execute("SET", unit.key("a while"), 1, "PX", 60_000)
    await valkey.execute("SET", other.key("x"), 1)
    left = await leftover_keys(valkey, unit)
    assert left.keys() == {"for ever", "a while"}
    assert left["for ever"] is None
    assert 50_000 < (left["a while"] or 0) <= 60_000
    assert await leftover_keys(valkey, valkey.unit("empty")) == {}
