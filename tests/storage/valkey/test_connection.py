"""Every server that cannot serve us says so at once and in our words; one that stumbles is tried again."""

import asyncio
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis import Redis

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tests.waiting import lasting_at_least, look_again, patience
from tidegate.core.errors import InvalidArgument, ServerRefused, ValkeyUnavailable
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey import connection as connection_module
from tidegate.storage.valkey.connection import connected, examine

PASSWORD = "open-s3same"


@pytest.fixture(scope="module")
def guarded() -> Iterator[ValkeyServer]:
    """A server with a password, and a user who may do everything but block."""
    [port] = free_ports(1)
    with ValkeyServer("--requirepass", PASSWORD, port=port) as server:
        with Redis(port=port, password=PASSWORD, protocol=3, legacy_responses=False) as client:
            client.acl_setuser(
                "patient", enabled=True, passwords=f"+{PASSWORD}", keys="*", categories=["+@all", "-@blocking"]
            )
        yield server


def address_of(server: ValkeyServer, *, user: str = "", password: str, scheme: str = "redis") -> str:
    return server.url.replace("redis://", f"{scheme}://{user}:{password}@")


async def refusal_of(url: str) -> ServerRefused:
    with pytest.raises(ServerRefused) as refusal:
        await Valkey.connect(url)
    return refusal.value


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_a_wrong_password_is_reported_and_never_shown(guarded: ValkeyServer, scheme: str):
    for user in ("", "nobody"):
        refusal = await refusal_of(address_of(guarded, user=user, password="wr0ng-s3same", scheme=scheme))
        assert "refused our user or password" in str(refusal)
        assert "TIDEGATE_VALKEY_URL" in refusal.remedy
        assert "s3same" not in "".join(traceback.format_exception(refusal))


async def test_a_missing_password_is_reported(guarded: ValkeyServer):
    assert "refused our user or password" in str(await refusal_of(guarded.url))


async def test_the_right_password_is_accepted(guarded: ValkeyServer):
    async with connected(address_of(guarded, password=PASSWORD)) as valkey:
        assert PASSWORD not in valkey.address
        assert valkey.info.product == "valkey"


async def test_a_user_without_the_right_to_block_is_detected_at_the_start(guarded: ValkeyServer):
    async with connected(address_of(guarded, user="patient", password=PASSWORD)) as valkey:
        assert not valkey.info.can_block
    async with connected(address_of(guarded, password=PASSWORD)) as valkey:
        assert valkey.info.can_block
        assert await valkey.execute("KEYS", "*") == [], "the probe left something behind"


async def test_a_replica_is_refused_with_the_remedy():
    primary_port, replica_port = free_ports(2)
    with (
        ValkeyServer(port=primary_port),
        ValkeyServer("--replicaof", f"127.0.0.1 {primary_port}", port=replica_port) as replica,
    ):
        refusal = await refusal_of(replica.url)
    assert "read-only replica" in refusal.what
    assert "primary" in refusal.remedy


async def test_writes_to_a_primary_that_became_a_replica_raise_a_defined_error():
    [port] = free_ports(1)
    with ValkeyServer() as server:
        async with connected(server.url) as valkey:
            await valkey.execute("REPLICAOF", "127.0.0.1", port)
            with pytest.raises(ServerRefused, match="read-only replica"):
                await valkey.execute("SET", valkey.unit("replica").key("x"), 1)
            [reply] = await valkey.pipeline([("SET", valkey.unit("replica").key("x"), 1)])
            assert isinstance(reply, ServerRefused)


async def test_a_cluster_node_needs_a_cluster_url_and_a_single_server_a_plain_one(
    cluster_url: str, guarded: ValkeyServer
):
    node = await refusal_of(cluster_url.replace("+cluster", ""))
    assert "redis+cluster://" in node.remedy
    alone = await refusal_of(address_of(guarded, password=PASSWORD, scheme="redis+cluster"))
    assert "redis://" in alone.remedy


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"redis_version": "6.2.14"}, "redis 6.2.14 is too old"),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.8"}, "valkey 7.2.8 is too old"),
        ({"redis_version": "7.4.0", "role": "slave"}, "read-only replica"),
    ],
)
async def test_an_outdated_server_is_refused(said: dict[str, str], reason: str):
    """No server that old can be had, so one pretends."""

    class Pretender:
        address, is_cluster = "redis://old", False

        async def execute(self, *command: Any) -> dict[str, str]:
            assert command == ("INFO",)
            return {"role": "master", "cluster_enabled": "0", **said}

    with pytest.raises(ServerRefused, match=reason):
        await examine(cast("Valkey", Pretender()))


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_a_missing_server_is_unavailable_and_may_return(scheme: str):
    [port] = free_ports(1)
    with pytest.raises(ValkeyUnavailable) as failure:
        await Valkey.connect(f"{scheme}://:{PASSWORD}@127.0.0.1:{port}")
    assert str(port) in str(failure.value)
    assert PASSWORD not in "".join(traceback.format_exception(failure.value))


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-Open\r\n", b"220 mail ready\r\n"])
async def test_a_server_of_another_kind_is_reported(scheme: str, greeting: bytes):
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        writer.close()

    unknown_caller = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with unknown_caller:
        refusal = await refusal_of(f"{scheme}://127.0.0.1:{unknown_caller.sockets[0].getsockname()[1]}")
    assert refusal.what == "the server is no Valkey or Redis"
    assert "TIDEGATE_VALKEY_URL" in refusal.remedy


async def test_writes_to_a_server_without_enough_replicas_raise_a_defined_error():
    with ValkeyServer("--min-replicas-to-write", "1") as server:
        async with connected(server.url) as valkey:
            assert valkey.info.can_block, "it may accept writes later"
            with pytest.raises(ServerRefused, match="lacks replicas") as refusal:
                await valkey.execute("SET", valkey.unit("lonely").key("x"), 1)
    assert "min-replicas-to-write" in refusal.value.remedy


async def test_writes_to_a_server_that_cannot_save_raise_a_defined_error():
    with ValkeyServer("--save", "3600 1", "--dbfilename", "dump.rdb") as server:
        async with connected(server.url) as valkey:
            folder = Path((await valkey.execute("CONFIG", "GET", "dir"))[b"dir"].decode())
            (folder / "dump.rdb").mkdir()  # where the file should be
            try:
                await valkey.execute("BGSAVE")
                async with patience():
                    while (await valkey.execute("INFO", "persistence"))["rdb_last_bgsave_status"] == "ok":
                        await look_again()
                with pytest.raises(ServerRefused, match="cannot save"):
                    await valkey.execute("SET", valkey.unit("full").key("x"), 1)
            finally:
                await valkey.execute("CONFIG", "SET", "save", "")  # or it would not end without having saved


async def ping_until_it_fails(valkey: Valkey) -> None:
    async with patience():
        while True:
            await valkey.execute("PING")


async def test_a_server_busy_with_a_script_is_unavailable_meanwhile():
    with ValkeyServer("--busy-reply-threshold", "1") as server:
        async with connected(server.url) as valkey, connected(server.url) as other:
            endless = asyncio.create_task(other.execute_blocking("EVAL", "while true do end", 0, within_s=30))
            try:
                with pytest.raises(ValkeyUnavailable, match="BUSY"):
                    await ping_until_it_fails(valkey)
            finally:
                with server.client() as client:
                    client.script_kill()
                await asyncio.gather(endless, return_exceptions=True)
            assert await valkey.execute("PING")


async def test_a_manually_unblocked_read_informs_its_reader(embedded: Valkey):
    key = embedded.unit("unblocked").key("list")
    reader = asyncio.create_task(embedded.execute_blocking("BLPOP", key, 30, within_s=30))
    await until_blocked(embedded, 1)
    blocked = re.search(rb"id=(\d+) .* cmd=blpop", await embedded.execute("CLIENT", "LIST"))
    assert blocked
    await embedded.execute("CLIENT", "UNBLOCK", blocked[1], "ERROR")
    with pytest.raises(ValkeyUnavailable):
        await reader


async def test_many_concurrent_first_blocking_reads_succeed(valkey: Valkey):
    units = [valkey.unit(f"first-{n}") for n in range(20)]
    async with connected(valkey.url) as fresh:
        await asyncio.gather(*(fresh.execute("RPUSH", unit.key("list"), "1") for unit in units))
        replies = await asyncio.gather(
            *(fresh.execute_blocking("BLPOP", unit.key("list"), 1, within_s=1) for unit in units)
        )
    assert [reply[1] for reply in replies] == [b"1"] * 20


async def test_a_missing_socket_is_unavailable():
    with pytest.raises(ValkeyUnavailable, match="nowhere"):
        await Valkey.connect("unix:///nowhere/valkey.sock")


async def kill_connections_of(valkey: Valkey) -> None:
    """Break every connection but the one that asks."""
    async with connected(valkey.url) as other:
        await other.execute("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")


async def test_a_broken_connection_is_reopened(embedded: Valkey):
    key = embedded.unit("broken").key("x")
    for n in range(3):
        await embedded.execute("SET", key, n)
        await kill_connections_of(embedded)
        assert await embedded.execute("GET", key) == str(n).encode()
        await kill_connections_of(embedded)
        assert await embedded.pipeline([("GET", key), ("GET", key)]) == [str(n).encode()] * 2


async def test_a_command_whose_reply_was_lost_is_repeated_but_not_a_blocking_one():
    """Whether it ran, nobody knows; so what must not run twice is the business of its reader, and of every script."""
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with Proxy(port) as wire, connected(f"redis://127.0.0.1:{wire.port}") as valkey:
            key = valkey.unit("lost").key("counter")
            wire.cut_after(b"INCR")
            assert await valkey.execute("INCR", key) == 2
            wire.cut_after(b"INCR")
            assert await valkey.pipeline([("INCR", key), ("INCR", key)]) == [5, 6]
            wire.cut_after(b"INCR")
            with pytest.raises(ValkeyUnavailable):
                await valkey.execute_blocking("INCR", key, within_s=1)
            assert await valkey.execute("GET", key) == b"7"


async def test_a_returned_server_is_used_again():
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with Proxy(port) as wire, connected(f"redis://127.0.0.1:{wire.port}") as valkey:
            await wire.refuse()
            with pytest.raises(ValkeyUnavailable):
                await valkey.execute("PING")
            await wire.listen()
            assert await valkey.execute("PING")


async def test_a_broken_blocking_read_informs_its_reader(embedded: Valkey):
    key = embedded.unit("broken").key("list")
    reader = asyncio.create_task(embedded.execute_blocking("BLPOP", key, 30, within_s=30))
    await until_blocked(embedded, 1)
    await kill_connections_of(embedded)
    with pytest.raises(ValkeyUnavailable):
        await reader
    await embedded.execute("RPUSH", key, "1")
    assert await embedded.execute_blocking("BLPOP", key, 1, within_s=1) == [key.encode(), b"1"]


async def test_a_cluster_client_can_be_closed_right_after_a_connection_broke(cluster_url: str):
    def connections(node: Redis) -> int:
        return len(cast("list[Any]", node.client_list()))

    with Redis.from_url(cluster_url.replace("+cluster", "")) as node:
        before = connections(node)
        valkey = await Valkey.connect(cluster_url)
        keys = [valkey.unit(f"part {n}").key("list") for n in range(12)]
        readers = [asyncio.create_task(valkey.execute_blocking("BLPOP", key, 30, within_s=30)) for key in keys]
        async with patience():
            while not cast("dict[str, int]", node.info("clients"))["blocked_clients"]:
                await asyncio.sleep(0)
            node.client_kill_filter(_type="normal", skipme=True)
            await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
            await valkey.close()
            while connections(node) > before:
                await asyncio.sleep(0)


async def until_blocked(valkey: Valkey, readers: int) -> None:
    """Asks until that many wait; the server tells nobody of its own accord."""
    async with patience():
        while (await valkey.execute("INFO", "clients"))["blocked_clients"] != readers:
            await asyncio.sleep(0)


async def test_a_blocking_read_may_be_silent_for_longer_than_the_response_timeout(
    embedded_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection_module, "_ANSWER_WITHIN_S", 0.5)
    async with connected(embedded_url) as hasty:
        key = hasty.unit("silence").key("list")
        with lasting_at_least(0.9):
            assert await hasty.execute_blocking("BLPOP", key, 1, within_s=1) is None


async def test_a_cancelled_blocking_read_takes_nothing(embedded: Valkey):
    key = embedded.unit("cancelled").key("list")
    reader = asyncio.create_task(embedded.execute_blocking("BLPOP", key, 30, within_s=30))
    await until_blocked(embedded, 1)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    await until_blocked(embedded, 0)
    await embedded.execute("RPUSH", key, "1")
    assert await embedded.execute("LLEN", key) == 1


async def test_a_thousand_concurrent_commands_wait_their_turn(valkey: Valkey):
    key = valkey.unit("crowd").key("counter")
    replies = await asyncio.gather(*(valkey.execute("INCR", key) for _ in range(1000)))
    assert sorted(replies) == list(range(1, 1001))


@pytest.mark.full
async def test_two_hundred_readers_block_concurrently_without_delaying_commands(embedded: Valkey):
    unit = embedded.unit("readers")
    readers = [
        asyncio.create_task(embedded.execute_blocking("BLPOP", unit.key(str(n)), 30, within_s=30)) for n in range(200)
    ]
    await until_blocked(embedded, 200)
    await embedded.pipeline([("RPUSH", unit.key(str(n)), n) for n in range(200)])
    assert [reply[1] for reply in await asyncio.gather(*readers)] == [str(n).encode() for n in range(200)]


async def test_an_error_is_returned_in_place_of_its_reply(valkey: Valkey):
    units = [valkey.unit(f"place-{n}") for n in range(4)]
    await valkey.execute("SET", units[1].key("x"), "text")
    replies = await valkey.pipeline([("INCR", unit.key("x")) for unit in units])
    assert [isinstance(reply, Exception) for reply in replies] == [False, True, False, False]
    assert await valkey.pipeline([]) == []


async def test_a_negative_wait_is_refused(embedded: Valkey):
    with pytest.raises(InvalidArgument, match="within_s"):
        await embedded.execute_blocking("BLPOP", embedded.unit("x").key("y"), 1, within_s=-1)


async def test_server_capabilities_are_available_after_connecting(valkey: Valkey, embedded_url: str):
    assert valkey.info.product in {"valkey", "redis"}
    assert valkey.info.version[0].isdigit()
    assert valkey.info.is_cluster == ("+cluster" in valkey.url)
    assert valkey.info.can_block
    assert valkey.info.persists == (valkey.url == embedded_url)
    assert not valkey.info.evicts
