"""Without the Valkey server: no updates, and reads continue from what is stored."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tests.systems.snapshots.deployment import Deployment, deployed, until
from tests.waiting import patience, simulated_delay
from tidegate.core.errors import Unavailable
from tidegate.core.priority import Priority
from tidegate.primitives.circuit_breaker import CircuitBreakerSettings
from tidegate.storage.valkey.connection import connected
from tidegate.systems.snapshots import lookup
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.reads import Freshness, SnapshotAnswer
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate_simulators.game import GameSimulator

WITHIN_S = 60.0


async def test_updates_stop_and_reads_continue(tmp_path: Path, sim: GameSimulator):
    [port] = free_ports(1)
    quick = CircuitBreakerSettings(window=4, open_for=_ms(300), trials=1)
    with ValkeyServer(port=port) as server:
        async with (
            Proxy(port) as proxy,
            connected(f"redis://127.0.0.1:{proxy.port}") as valkey,
            deployed(tmp_path, valkey, sim, breaker=quick, local_cache_for=_ms(1)) as deployment,
            deployment.working(),
        ):
            assert server.url
            for key in range(10, 30):
                await until(lambda: _fresh(deployment, key))  # noqa: B023 - it is awaited at once
            await proxy.refuse()
            first = await deployment.read(3)
            known = [await deployment.read(key) for key in range(10, 30)]
            unknown = await deployment.read(2)
            with pytest.raises(Unavailable):
                await deployment.snapshots.requests.publish(_refresh_request(2))
            assert sim.calls_of(2) == 0

            await proxy.listen()
            answer = await until(lambda: _fresh(deployment, 2))

    # Whoever finds out that it is gone says so, and not only those who come later.
    assert (first.freshness, first.update_queued, first.estimated_wait_ms) == (Freshness.NOT_FOUND, False, None)
    assert {each.freshness for each in known} == {Freshness.FRESH}
    assert (unknown.freshness, unknown.update_queued, unknown.estimated_wait_ms) == (Freshness.NOT_FOUND, False, None)
    assert deployment.is_true(2, answer)


async def test_a_slow_server_delays_no_reader(tmp_path: Path, sim: GameSimulator, monkeypatch: pytest.MonkeyPatch):
    """SQL is asked when the server takes its time, long before it counts as away."""
    monkeypatch.setattr(lookup, "_SERVER_WITHIN_S", 3600.0)
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with (
            Proxy(port) as wire,
            connected(f"redis://127.0.0.1:{wire.port}") as valkey,
            deployed(tmp_path, valkey, sim, local_cache_for=_ms(1)) as deployment,
        ):
            async with deployment.working():
                await asyncio.gather(*(deployment.until_fresh(key) for key in (1, 2)))
            wire.delay(3600)
            async with patience():
                answer = await deployment.read(1)

            wire.delay(0.9)
            await deployment.database.close()
            alone = await deployment.read(2)
            wire.delay(0)

    assert deployment.is_true(1, answer)
    assert deployment.is_true(2, alone)  # where SQL cannot say, a slow server is better than none


async def test_events_in_progress_at_an_outage_are_processed_when_the_server_returns(
    tmp_path: Path, sim: GameSimulator
):
    """No permit without the server, so no call; and no acknowledgement is lost for good."""
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with (
            Proxy(port) as proxy,
            connected(f"redis://127.0.0.1:{port}") as direct,
            connected(f"redis://127.0.0.1:{proxy.port}") as valkey,
            deployed(tmp_path, direct, sim) as asking,
            deployed(tmp_path, valkey, sim) as deployment,
            deployment.working(),
        ):
            for key in range(1, 40):
                await asking.snapshots.requests.publish(_refresh_request(key))
                if key == 10:
                    await proxy.refuse()
                if key == 30:
                    await simulated_delay(0.3)
                    await proxy.listen()
            await until(lambda: _all_done(asking))
            rows = [await asking.row(key) for key in range(1, 40)]

    assert all(row is not None for row in rows)
    assert sim.report().broken == 0


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _refresh_request(key: int) -> RefreshRequest:
    return RefreshRequest(
        subject=SnapshotSubject("character", str(key)), priority=Priority.HIGH, reason=Reason.USER_REQUEST
    )


async def _fresh(deployment: Deployment, key: int) -> SnapshotAnswer | None:
    answer = await deployment.read(key)
    return answer if answer.freshness is Freshness.FRESH else None


async def _all_done(deployment: Deployment) -> bool:
    return await deployment.pending() == 0
