"""A whole deployment on Kafka: read, refresh, snapshot, and the replay of a failure."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.processes import start_warm
from tests.servers.kafka import broker
from tests.servers.proxy import Proxy
from tests.systems.snapshots.deployment import Deployment, deployed, until
from tests.waiting import patience
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.events import FailureReason
from tidegate.systems.snapshots.reads import Freshness
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic
from tidegate_simulators.game import FaultKind, GameSimulator


@pytest.fixture
async def on_kafka(tmp_path: Path, embedded: Valkey, sim: GameSimulator) -> AsyncGenerator[Deployment]:
    server = broker()
    settings = server.settings()
    async with deployed(tmp_path, embedded, sim, transport="kafka", kafka=settings) as opened:
        await opened.snapshots.transport.create_topics()
        yield opened
    await server.forget(settings)


async def waiting(deployment: Deployment) -> int:
    return await deployment.snapshots.transport.lag(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])


async def nothing_waits(deployment: Deployment) -> bool:
    return await waiting(deployment) == 0


async def test_readers_are_served_and_a_dead_letter_is_replayed(on_kafka: Deployment):
    on_kafka.sim.faults.inject(FaultKind.BAD_REQUEST, times=1, subject=7)
    async with on_kafka.working():
        for key in (1, 2, 3):
            assert on_kafka.is_true(key, await on_kafka.until_fresh(key))
        await on_kafka.read(7)
        [letter] = await until(on_kafka.snapshots.dead.list)
        await on_kafka.snapshots.dead.replay(letter.id)
        await on_kafka.until_fresh(7)
        await until(lambda: nothing_waits(on_kafka))

    assert await on_kafka.snapshots.dead.list() == []
    assert [on_kafka.sim.calls_of(key) for key in (1, 2, 3, 7)] == [1, 1, 1, 2]


async def test_while_the_database_is_locked_no_offset_is_committed(on_kafka: Deployment, tmp_path: Path):
    async with on_kafka.working():
        await on_kafka.until_fresh(1)
        await until(lambda: nothing_waits(on_kafka))
        with sqlite3.connect(tmp_path / "tidegate.db", isolation_level=None) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            await on_kafka.read(2)
            await until(lambda: on_kafka.sim.calls_of(2) == 1)
            assert await waiting(on_kafka) == 1
            blocker.execute("ROLLBACK")
        blocker.close()
        await on_kafka.until_fresh(2)
        await until(lambda: nothing_waits(on_kafka))

    assert on_kafka.sim.calls_of(2) == 1


async def test_a_slow_broker_delays_no_reader(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    server = broker()
    settings = server.settings()
    async with (
        Proxy(server.wired_port, at=server.wire_at) as wire,
        deployed(
            tmp_path,
            embedded,
            sim,
            transport="kafka",
            kafka=settings.model_copy(update={"servers": f"127.0.0.1:{wire.port}"}),
        ) as deployment,
    ):
        await deployment.snapshots.transport.create_topics()
        async with deployment.working():
            await deployment.until_fresh(1)
            wire.delay(3600)
            async with patience():
                cold = [await deployment.read(key) for key in range(2, 12)]
            wire.delay(0)
            await asyncio.gather(*(deployment.until_fresh(key) for key in range(2, 12)))
    await server.forget(settings)

    assert {answer.freshness for answer in cold} == {Freshness.UPDATING}


@pytest.mark.crash
async def test_an_event_that_kills_every_worker_becomes_a_dead_letter(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator
):
    server = broker()
    settings = server.settings()
    async with deployed(tmp_path, embedded, sim, transport="kafka", kafka=settings, most_deliveries=2) as deployment:
        await deployment.snapshots.transport.create_topics()
        await deployment.read(7)
        for _ in range(2):
            await _dies_with_it(settings.model_dump_json())
        async with deployment.working("refresh-high"):
            [letter] = await until(deployment.snapshots.dead.list)
            answer = await deployment.wait(7)
            await until(lambda: nothing_waits(deployment))
    await server.forget(settings)

    assert letter.update.reason is FailureReason.WORKER_CRASHED
    assert "it was delivered 2 times" in letter.update.message
    assert sim.calls_of(7) == 0
    assert (answer.freshness, answer.update_queued) == (Freshness.NOT_FOUND, False)
    assert answer.kept.failed is not None
    assert answer.kept.failed.reason == FailureReason.WORKER_CRASHED


async def _dies_with_it(settings: str) -> None:
    doomed = await start_warm(
        *(sys.executable, "-m", "tests.systems.snapshots.transports.kafka_reader", settings, "1"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert doomed.stdout
        async with patience():
            assert await doomed.stdout.readline() == b"in hand\n"
    finally:
        doomed.kill()
        await doomed.wait()
