"""The breaker opens for a server that does not answer, and not for delays of this process."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tests.systems.snapshots.deployment import Deployment, deployed, until
from tests.virtual_time import run_virtually
from tests.waiting import blocked_process, simulated_delay
from tidegate.core.errors import CircuitOpen, ValkeyUnavailable
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.circuit_breaker import CircuitBreaker, CircuitBreakerSettings, CircuitBreakerState
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.snapshots.reads import Freshness
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic
from tidegate.systems.snapshots.valkey_guard import ServerBusy, ServerState, ValkeyGuard
from tidegate_simulators.game import GameSimulator

WITHIN_S = 60.0
BRIEF = timedelta(milliseconds=300)
COLD = 400


@asynccontextmanager
async def guarded(
    valkey: Valkey, settings: CircuitBreakerSettings | None = None
) -> AsyncGenerator[tuple[ValkeyGuard, CircuitBreaker]]:
    breaker = CircuitBreaker("valkey", settings or CircuitBreakerSettings(window=4, open_for=BRIEF))
    guard = ValkeyGuard(valkey, breaker, valkey.unit("snapshots"))
    try:
        yield guard, breaker
    finally:
        await guard.close()


@asynccontextmanager
async def on_a_wire() -> AsyncGenerator[tuple[Proxy, Valkey]]:
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with Proxy(port) as wire, connected(f"redis://127.0.0.1:{wire.port}") as valkey:
            yield wire, valkey


async def test_a_blocked_event_loop_is_not_a_server_failure(embedded: Valkey):
    async with guarded(embedded) as (guard, breaker):
        await asyncio.gather(*(_ping(guard, embedded, within_s=WITHIN_S) for _ in range(20)))  # connections are open
        calls = [asyncio.create_task(_ping(guard, embedded, within_s=0.5)) for _ in range(20)]
        await asyncio.sleep(0)
        blocked_process(1)  # the event loop stands still; the answers are there when it goes on
        await asyncio.gather(*calls)

    assert (guard.state, breaker.state) == (ServerState.AVAILABLE, CircuitBreakerState.CLOSED)


def test_waiting_for_a_local_slot_is_not_counted(monkeypatch: pytest.MonkeyPatch):
    """In virtual time: on a slow machine each answer would take longer than the call may take."""

    async def answer(*_: object, **__: object) -> bytes:
        await simulated_delay(0.5)
        return b"PONG"

    async def scenario(_: object) -> tuple[ServerState, CircuitBreakerState]:
        valkey = Valkey("redis://127.0.0.1:1")  # never connected: its answers are those above
        async with guarded(valkey) as (guard, breaker):
            # Each takes half a second, 64 are sent at once: the last ones wait for longer than a call may take.
            await asyncio.gather(*(_ping(guard, valkey, within_s=1.2) for _ in range(64 * 4)))
            standing = guard.state, breaker.state
        await valkey.close()
        return standing

    monkeypatch.setattr(Redis, "execute_command", answer)

    assert run_virtually(scenario) == (ServerState.AVAILABLE, CircuitBreakerState.CLOSED)


async def test_a_slow_call_counts_only_if_the_server_does_not_answer_a_ping():
    async with on_a_wire() as (wire, valkey), guarded(valkey) as (guard, breaker):
        wire.delay(0.15)
        for _ in range(8):
            with pytest.raises(ServerBusy, match="the server answers PING"):
                await _ping(guard, valkey, within_s=0.01)

        assert (guard.state, breaker.state) == (ServerState.AVAILABLE, CircuitBreakerState.CLOSED)


async def test_a_refusing_server_opens_the_breaker_and_its_return_closes_it():
    """Nobody has to call: it is tried as soon as the breaker allows it, with as many trials as that takes."""
    async with on_a_wire() as (wire, valkey), guarded(valkey) as (guard, breaker):
        returned = asyncio.Event()
        guard.on_return.append(returned.set)
        await wire.refuse()
        with pytest.raises(ValkeyUnavailable):
            await _ping(guard, valkey)
        assert guard.state is ServerState.UNCERTAIN
        await until(lambda: _is_open(guard, valkey, breaker), within_s=WITHIN_S)
        assert guard.state is ServerState.UNAVAILABLE
        with pytest.raises(CircuitOpen):
            await _ping(guard, valkey)

        await wire.listen()
        async with asyncio.timeout(WITHIN_S):
            await returned.wait()

        assert (guard.state, breaker.state) == (ServerState.AVAILABLE, CircuitBreakerState.CLOSED)


async def test_a_silent_server_opens_the_breaker():
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with connected(f"redis://127.0.0.1:{port}") as valkey, guarded(valkey) as (guard, breaker):
            info = await valkey.execute("INFO", "server")
            server = int(info["process_id"] if isinstance(info, dict) else 0)
            os.kill(server, signal.SIGSTOP)
            try:
                await until(lambda: _is_open(guard, valkey, breaker), within_s=WITHIN_S)
            finally:
                os.kill(server, signal.SIGCONT)
            await until(lambda: guard.state is ServerState.AVAILABLE, within_s=WITHIN_S)


async def test_a_server_that_refuses_writes_is_probed_by_one_task_until_it_accepts_them(
    tmp_path: Path, sim: GameSimulator
):
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        quick = CircuitBreakerSettings(window=2)
        async with (
            connected(f"redis://127.0.0.1:{port}") as valkey,
            deployed(tmp_path, valkey, sim, breaker=quick) as deployment,
        ):
            await valkey.execute("CONFIG", "SET", "maxmemory", "1")
            configure_logs(level="info")
            with capture_logs() as logs:
                at_once = await until(lambda: _not_queued(deployment, 7), within_s=WITHIN_S)
                waiting = [asyncio.create_task(deployment.wait(key, within_s=WITHIN_S)) for key in range(7, 17)]
                await until(lambda: deployment.snapshots.feed.watchers_of("character/16"), within_s=WITHIN_S)
                await _refused_probes(valkey, 3)
                states = [breaker.state for breaker in deployment.snapshots.breakers]
                assert states == [CircuitBreakerState.CLOSED] * 2, (
                    "a refusal is an answer: an open breaker delays the return"
                )
                await valkey.execute("CONFIG", "SET", "maxmemory", "0")
                async with deployment.working():
                    answers = await asyncio.gather(*waiting)

    assert (at_once.freshness, at_once.update_queued) == (Freshness.NOT_FOUND, False)
    assert {each.freshness for each in answers} == {Freshness.FRESH}
    told = [line["event"] for line in logs if line["event"].startswith(("server.", "snapshots.ask"))]
    assert told == ["server.refused", "server.back"], "one line for each change, whatever part noticed it"


async def _refused_probes(valkey: Valkey, count: int) -> None:
    """Until the server was tried so often in vain."""

    async def refused() -> bool:
        stats = await valkey.execute("INFO", "commandstats")
        return int(stats.get("cmdstat_setrange", {}).get("rejected_calls", 0)) >= count

    await until(refused, within_s=WITHIN_S)


async def test_cold_reads_faster_than_the_server_are_all_queued(tmp_path: Path, sim: GameSimulator):
    """One command for each of them would wait for its turn for longer than a call may take."""
    async with on_a_wire() as (wire, valkey), deployed(tmp_path, valkey, sim) as deployment:
        wire.delay(0.3)
        answers = await asyncio.gather(*(deployment.read(key) for key in range(1, COLD + 1)))
        again = await asyncio.gather(*(deployment.read(key) for key in range(1, COLD + 1)))
        queued = await until(lambda: _queued(deployment), within_s=WITHIN_S)

        assert {each.freshness for each in [*answers, *again]} == {Freshness.UPDATING}
        assert queued == COLD
        assert [breaker.state for breaker in deployment.snapshots.breakers] == [CircuitBreakerState.CLOSED] * 2


async def test_concurrent_cold_reads_share_one_query_and_one_step(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    sent: list[list[str]] = []
    pipeline = Valkey.pipeline

    async def counted(self: Valkey, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        sent.append([command[0] for command in commands])
        return await pipeline(self, commands)

    monkeypatch.setattr(Valkey, "pipeline", counted)
    await deployment.snapshots.requests.publish_many([])
    await asyncio.gather(*(deployment.read(key) for key in range(1, 101)))
    await until(lambda: _queued(deployment, 100), within_s=WITHIN_S)

    asked = [commands for commands in sent if commands[0] == "EVALSHA"]
    assert [commands for commands in sent if commands[0] == "HGETALL"] == [["HGETALL"] * 100]
    assert asked == [["EVALSHA"]]


async def test_a_waiting_reader_keeps_waiting_while_the_server_is_probed(tmp_path: Path, sim: GameSimulator):
    async with on_a_wire() as (wire, valkey):
        quick = CircuitBreakerSettings(window=100)
        async with deployed(tmp_path, valkey, sim, breaker=quick) as deployment, deployment.working():
            await wire.refuse()
            at_once = await until(lambda: _not_queued(deployment, 7), within_s=WITHIN_S)
            waiting = asyncio.create_task(deployment.wait(7, within_s=WITHIN_S))
            await until(lambda: deployment.snapshots.feed.watchers_of("character/7"), within_s=WITHIN_S)
            assert not waiting.done()
            await wire.listen()
            answer = await waiting

    assert at_once.freshness is Freshness.NOT_FOUND
    assert answer.freshness is Freshness.FRESH


async def _ping(guard: ValkeyGuard, valkey: Valkey, *, within_s: float = 0.2) -> None:
    await guard.call(lambda: valkey.execute("PING"), within_s=within_s)


async def _is_open(guard: ValkeyGuard, valkey: Valkey, breaker: CircuitBreaker) -> bool:
    with suppress(ValkeyUnavailable, CircuitOpen, ServerBusy):
        await _ping(guard, valkey)
    return breaker.state is CircuitBreakerState.OPEN


async def _queued(deployment: Deployment, count: int = COLD) -> int | None:
    lag = await deployment.snapshots.transport.lag(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])
    return lag if lag >= count else None


async def _not_queued(deployment: Deployment, key: int) -> Any:
    answer = await deployment.read(key)
    return None if answer.update_queued else answer
