"""The whole path on Kafka: a reader's wish, a worker's call, a snapshot; and a failure that is replayed."""

import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.kafka import broker
from tests.snapshots.deployment import Deployment, deployed, until
from tidegate.simulators.game import FaultKind, GameSimulator
from tidegate.snapshots.transport import GROUPS, Topic
from tidegate.valkey import Valkey


@pytest.fixture
async def on_kafka(tmp_path: Path, embedded: Valkey, sim: GameSimulator) -> AsyncGenerator[Deployment]:
    server = broker()
    settings = server.settings()
    async with deployed(tmp_path, embedded, sim, transport="kafka", kafka=settings) as opened:
        await opened.snapshots.transport.create_topics()
        yield opened
    await server.forget(settings)


async def waiting(deployment: Deployment) -> int:
    return await deployment.snapshots.transport.lag(Topic.HIGH, GROUPS[Topic.HIGH])


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


async def test_nothing_is_committed_while_the_database_is_locked(on_kafka: Deployment, tmp_path: Path):
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
