"""The bundled server: shared, kept alive, never orphaned, and with its data whatever happens to anybody."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.processes import WarmProcess, start_warm
from tests.servers.valkey import redis_binary, wait_until_stopped
from tests.waiting import look_again, patience
from tidegate.connections import open_valkey
from tidegate.core.errors import ServerRefused, ValkeyUnavailable
from tidegate.settings import Settings
from tidegate.storage.valkey import Valkey, embedded
from tidegate.storage.valkey.connection import connected
from tidegate.storage.valkey.embedded import EmbeddedServer, server_binary, starting_in_background

ROOT = Path(__file__).parents[2]


async def pid_of(valkey: Valkey) -> int:
    return (await valkey.execute("INFO", "server"))["process_id"]


async def stopped(data_dir: Path) -> None:
    """Return when the server of this folder has gone; the kernel tells."""
    async with patience():
        await asyncio.to_thread(wait_until_stopped, data_dir / "valkey")


def left_behind(data_dir: Path) -> list[psutil.Process]:
    """What still runs in this folder (guardians, and servers, whose working directory it is) and does not end soon."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(data_dir) in " ".join(process.cmdline()) or process.cwd() == str(data_dir / "valkey"):
                found.append(process)
    return psutil.wait_procs(found, timeout=5)[1]


class User:
    """Another process that uses the server of a folder."""

    def __init__(self, process: WarmProcess, server_pid: int) -> None:
        self._process, self.server_pid = process, server_pid

    @classmethod
    async def start(cls, data_dir: Path) -> "User":
        process = await start_warm(
            *(sys.executable, "-m", "tests.storage.valkey.user_of_embedded", str(data_dir)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
        )
        assert process.stdout
        while not (line := await process.stdout.readline()).strip().isdigit():
            assert line, "the other process fell"
        return cls(process, int(line))

    async def leave(self) -> None:
        await self._process.communicate(b"")

    async def kill(self) -> None:
        self._process.kill()
        await self._process.communicate()


@asynccontextmanager
async def using(data_dir: Path) -> AsyncGenerator[Valkey]:
    async with await EmbeddedServer.start(data_dir) as server, connected(server.url) as valkey:
        yield valkey


async def test_data_survives_a_restart(tmp_path: Path):
    async with using(tmp_path) as valkey:
        first = await pid_of(valkey)
        await valkey.execute("SET", "kept", "x" * 1000)
        await valkey.execute("XADD", "stream", "1-1", "field", "value")
    await stopped(tmp_path)
    assert not psutil.pid_exists(first)
    assert left_behind(tmp_path) == []

    async with using(tmp_path) as valkey:
        assert await valkey.execute("GET", "kept") == b"x" * 1000
        assert await valkey.execute("XLEN", "stream") == 1


async def test_a_server_that_starts_in_the_background_serves_the_block_and_stops_after_it(tmp_path: Path):
    with starting_in_background(tmp_path):
        async with using(tmp_path) as valkey:
            first = await pid_of(valkey)
        # The block uses the server too, so it runs although the last connection was closed.
        async with using(tmp_path) as valkey:
            assert await pid_of(valkey) == first
    await stopped(tmp_path)
    assert left_behind(tmp_path) == []


async def test_a_server_that_cannot_start_in_the_background_is_reported_by_its_first_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def no_binary() -> Path:
        raise ServerRefused("embedded Valkey", "no binary", remedy="Install one")

    monkeypatch.setattr(embedded, "server_binary", no_binary)
    with starting_in_background(tmp_path), pytest.raises(ServerRefused, match="no binary"):
        await EmbeddedServer.start(tmp_path)


@pytest.mark.smoke
@pytest.mark.crash
async def test_a_killed_server_is_restarted_with_its_data(tmp_path: Path):
    async with using(tmp_path) as valkey:
        for n in range(2):
            await valkey.execute("SET", f"key-{n}", n)
            # While the disk is busy, the server keeps back for up to two seconds what it has to write.
            assert (await valkey.execute("WAITAOF", 1, 0, 10_000))[0] == 1
            pid = await pid_of(valkey)
            os.kill(pid, signal.SIGKILL)
            await until_answered_by_another(valkey, pid)
            assert await valkey.execute("GET", f"key-{n}") == str(n).encode()
    await stopped(tmp_path)
    assert left_behind(tmp_path) == []


async def until_answered_by_another(valkey: Valkey, pid: int) -> None:
    async with patience():
        while True:
            with contextlib.suppress(ValkeyUnavailable):
                if await pid_of(valkey) != pid:
                    return
            await look_again()


@pytest.mark.crash
async def test_a_server_ends_with_its_last_user_although_killed_and_keeps_the_data(tmp_path: Path):
    user = await User.start(tmp_path)
    assert psutil.pid_exists(user.server_pid)
    await user.kill()
    await stopped(tmp_path)
    assert not psutil.pid_exists(user.server_pid)
    assert left_behind(tmp_path) == []


@pytest.mark.crash
async def test_a_server_ends_with_its_guardian(tmp_path: Path):
    if sys.platform != "linux":
        pytest.skip("only Linux tells a child of its parent's death")
    async with using(tmp_path) as valkey:
        server = psutil.Process(await pid_of(valkey))
        guardian = server.parent()
        assert guardian is not None
        assert "guardian.py" in " ".join(guardian.cmdline())
        await valkey.execute("SET", "kept", 1)
        guardian.kill()
        await asyncio.to_thread(server.wait, 10)
        async with using(tmp_path) as again:
            assert await again.execute("GET", "kept") == b"1"
            assert await valkey.execute("GET", "kept") == b"1", "an older user finds the new server"
    await stopped(tmp_path)
    assert left_behind(tmp_path) == []


@pytest.mark.crash
async def test_a_killed_guardian_is_replaced_while_the_server_is_needed(tmp_path: Path):
    """By one of them: two processes of the folder find the same server, with its data."""
    settings = Settings(data_dir=tmp_path)
    async with open_valkey(settings) as one, open_valkey(settings) as other:
        key = one.unit("revived").key("x")
        await one.execute("SET", key, "kept")
        pid = await pid_of(one)
        guardian = psutil.Process(pid).parent()
        assert guardian is not None
        guardian.kill()
        await asyncio.gather(until_answered_by_another(one, pid), until_answered_by_another(other, pid))
        assert await pid_of(one) == await pid_of(other)
        assert await other.execute("GET", key) == b"kept"
    await stopped(tmp_path)


async def test_two_processes_share_one_server_which_stays_when_the_first_leaves(tmp_path: Path):
    first = await User.start(tmp_path)
    async with using(tmp_path) as valkey:
        assert await pid_of(valkey) == first.server_pid
        await first.leave()
        assert await pid_of(valkey) == first.server_pid
        second = await User.start(tmp_path)
        assert second.server_pid == first.server_pid
    await second.kill()
    await stopped(tmp_path)
    assert not psutil.pid_exists(first.server_pid)


@pytest.mark.race
async def test_processes_started_at_the_same_time_start_one_server(tmp_path: Path):
    users = await asyncio.gather(*(User.start(tmp_path) for _ in range(4)))
    assert len({user.server_pid for user in users}) == 1
    await asyncio.gather(*(user.kill() for user in users))
    await stopped(tmp_path)
    assert left_behind(tmp_path) == []


@pytest.mark.smoke
@pytest.mark.race
async def test_many_users_in_one_process_start_one_server(tmp_path: Path):
    servers = await asyncio.gather(*(EmbeddedServer.start(tmp_path) for _ in range(10)))
    assert len({server.url for server in servers}) == 1
    async with connected(servers[0].url) as valkey:
        pid = await pid_of(valkey)
        for server in servers[:9]:
            server.close()
        assert await pid_of(valkey) == pid
    servers[9].close()
    await stopped(tmp_path)
    assert left_behind(tmp_path) == []


@pytest.mark.race
async def test_a_process_that_joins_while_the_server_stops_gets_a_working_one(tmp_path: Path):
    """Each round enters the moment the last user left: too late to stop the stop, too early to find it done."""
    for n in range(8):
        async with using(tmp_path) as valkey:
            assert int(await valkey.execute("GET", "rounds") or 0) == n
            await valkey.execute("INCR", "rounds")
    await stopped(tmp_path)
    assert left_behind(tmp_path) == []


async def test_closing_twice_is_harmless(tmp_path: Path):
    server = await EmbeddedServer.start(tmp_path)
    server.close()
    with socket.socket() as innocent:  # it may well get the number that the lock had
        server.close()
        assert innocent.fileno() >= 0
        os.fstat(innocent.fileno())
    await stopped(tmp_path)


async def test_a_data_folder_with_spaces_and_non_ascii_letters_works(tmp_path: Path):
    folder = tmp_path / "my data 'é' %20 #1"
    async with using(folder) as valkey:
        await valkey.execute("SET", "a", 1)
    await stopped(folder)
    async with using(folder) as valkey:
        assert await valkey.execute("GET", "a") == b"1"
    await stopped(folder)


async def test_a_data_folder_whose_path_is_too_long_for_a_socket_works(tmp_path: Path):
    folder = tmp_path / ("long " * 20) / ("longer " * 20)
    async with await EmbeddedServer.start(folder) as server:
        assert len(os.fsencode(server.socket)) <= 100
        assert server.socket.parent.stat().st_mode & 0o077 == 0, "nobody else may enter"
        async with connected(server.url) as valkey, using(folder) as other:
            await valkey.execute("SET", "a", 1)
            assert await other.execute("GET", "a") == b"1"
    await stopped(folder)
    server.socket.parent.rmdir()


async def test_without_any_binary_the_error_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded, "find_spec", dict[str, None]().get)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerRefused, match="TIDEGATE_VALKEY_URL") as refusal:
        await EmbeddedServer.start(tmp_path)
    assert "valkey-server" in refusal.value.what
    assert left_behind(tmp_path) == []


async def test_without_the_bundled_binary_one_on_the_path_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis7_url: str
):
    assert redis7_url, "there is a Redis"
    monkeypatch.setattr(embedded, "find_spec", dict[str, None]().get)
    assert server_binary().name in {"redis-server", "valkey-server"}
    monkeypatch.setattr(embedded, "server_binary", redis_binary)
    async with using(tmp_path) as valkey:
        assert valkey.info.product == "redis"
        await valkey.execute("SET", "a", 1)
    await stopped(tmp_path)
    async with using(tmp_path) as valkey:
        assert await valkey.execute("GET", "a") == b"1"
    await stopped(tmp_path)


@pytest.mark.parametrize("fault", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho out of disk; exit 0\n"])
async def test_a_server_that_does_not_start_is_reported_with_the_path_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
):
    broken = tmp_path / "valkey-server"
    broken.write_text(fault)
    broken.chmod(0o755)
    monkeypatch.setattr(embedded, "server_binary", lambda: broken)
    with pytest.raises(ServerRefused, match=r"did not start.*server\.log"):
        await EmbeddedServer.start(tmp_path)
    await stopped(tmp_path)
    monkeypatch.undo()
    async with using(tmp_path) as valkey:
        assert await valkey.execute("PING")
    await stopped(tmp_path)


async def test_damaged_data_is_reported_and_leaves_no_process(tmp_path: Path):
    async with using(tmp_path) as valkey:
        await valkey.execute("SET", "a", 1)
    await stopped(tmp_path)
    for file in (tmp_path / "valkey" / "appendonlydir").glob("*.aof"):
        file.write_bytes(b"this is no log of commands\r\n" * 10)
    with pytest.raises(ServerRefused, match=r"did not start.*server\.log"):
        await EmbeddedServer.start(tmp_path)
    await stopped(tmp_path)
    assert left_behind(tmp_path) == []


async def test_only_the_owner_can_connect_to_the_server(tmp_path: Path):
    async with await EmbeddedServer.start(tmp_path) as server:
        assert server.socket.stat().st_mode & 0o077 == 0
        assert (tmp_path / "valkey").stat().st_mode & 0o077 == 0
    await stopped(tmp_path)
