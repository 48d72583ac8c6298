"""Migration between transports: nothing is lost or called twice, and readers are not affected."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from tests.servers.kafka import broker
from tests.systems.snapshots.deployment import deployed, until
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import configure_logs
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.reads import Freshness
from tidegate.systems.snapshots.settings import SnapshotSettings
from tidegate.systems.snapshots.transports.opening import MigratingTransport, TransportMigration
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic
from tidegate.systems.snapshots.transports.streams import StreamTransport
from tidegate_simulators.game import FaultKind, GameSimulator


@pytest.fixture
def moving(embedded: Valkey) -> MigratingTransport:
    new, previous = (StreamTransport(embedded, embedded.unit(unit), "ours") for unit in ("new", "previous"))
    return MigratingTransport(new, previous)


async def test_waiting_events_on_either_transport_are_counted_and_new_ones_use_the_new_transport(
    moving: MigratingTransport,
):
    await moving.previous.publish(RefreshTopic.HIGH, [("character/1", b"1")])
    await moving.publish(RefreshTopic.HIGH, [("character/2", b"2"), ("character/3", b"3")])
    await moving.publish(RefreshTopic.DEAD, [("character/4", b"4")])

    assert await moving.lag(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH]) == 3
    assert (await moving.new.unfinished(), await moving.previous.unfinished(), await moving.unfinished()) == (2, 1, 3)
    assert (await moving.new.dead_count(), await moving.previous.dead_count()) == (1, 0)
    assert len(moving.recoverable) == 4, "what a dead process held of either goes to others"


async def test_dead_letters_are_moved_and_none_is_lost_by_a_crash(
    moving: MigratingTransport, monkeypatch: pytest.MonkeyPatch
):
    letters = [(f"character/{n}", b"%d" % n) for n in range(250)]
    await moving.previous.publish(RefreshTopic.DEAD, letters)
    move = TransportMigration(moving)
    with monkeypatch.context() as dying:
        dying.setattr(moving.previous, "drop", _away)
        with pytest.raises(Unavailable):
            await move.fire()
    assert await moving.previous.dead_count() == 250

    while await TransportMigration(moving).fire() == 0:
        pass

    found = await moving.dead(limit=1000)
    assert {(each.key, each.value) for each in found} == set(letters)
    assert await moving.previous.dead_count() == 0


async def _away(_: str) -> bool:
    raise Unavailable("it is away")


async def test_an_empty_previous_transport_is_logged_once(moving: MigratingTransport):
    configure_logs(level="info")
    await moving.previous.publish(RefreshTopic.LOW, [("character/1", b"1")])
    consumer, move = moving.previous.consumer(RefreshTopic.LOW, GROUPS[RefreshTopic.LOW]), TransportMigration(moving)
    with capture_logs() as logs:
        await move.fire()
        held = await consumer.read(10, 1)
        await move.fire()
        assert logs == [], "an event in hand is not done"
        await consumer.ack(held)
        pauses = [await move.fire() for _ in range(3)]
    await consumer.leave()

    assert [line["event"] for line in logs] == ["snapshots.transport_drained"]
    assert pauses == sorted(pauses), "it looks less and less often"


@pytest.mark.full
async def test_readers_are_served_during_a_migration_from_streams_to_kafka(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator
):
    """One process after the other is started with the new setting; the one that is not goes on as it was."""
    server = broker()
    settings = server.settings()
    new: dict[str, Any] = {"transport": "kafka", "previous_transport": "streams", "kafka": settings}
    async with deployed(tmp_path, embedded, sim) as before:
        sim.faults.inject(FaultKind.BAD_REQUEST, times=1, subject=9)
        async with before.working():
            await before.read(9)
            await until(before.snapshots.dead.list)
        for key in range(1, 6):
            assert (await before.read(key)).freshness is Freshness.UPDATING
        await until(before.pending)

        async with deployed(tmp_path, embedded, sim, **new) as after:
            await after.snapshots.transport.create_topics()
            assert {stream.name for stream in after.snapshots.recoverable} == set(GROUPS)
            async with after.working():
                for key in range(1, 6):
                    await before.until_fresh(key)
                for key in range(11, 14):
                    await after.until_fresh(key)
                await before.until_fresh(21)  # still on streams
                assert await after.snapshots.dead.list() == []
                move = next(each for each in after.snapshots.scheduled if isinstance(each, TransportMigration))
                while await move.fire() == 0:
                    pass
                [letter] = await until(after.snapshots.dead.list)
                await after.snapshots.dead.replay(letter.id)
                await after.until_fresh(9)
            assert isinstance(after.snapshots.transport, MigratingTransport)
            assert await after.snapshots.transport.previous.unfinished() == 0

        kafka_alone = deployed(tmp_path, embedded, sim, transport="kafka", kafka=settings)
        async with kafka_alone as switched, switched.working():
            await switched.until_fresh(31)
    await server.forget(settings)

    assert {key: sim.calls_of(key) for key in (*range(1, 6), *range(11, 14), 21, 31)} == dict.fromkeys(
        (*range(1, 6), *range(11, 14), 21, 31), 1
    )


async def test_events_left_on_streams_after_a_switch_are_logged(tmp_path: Path, embedded: Valkey, sim: GameSimulator):
    configure_logs(level="info")
    async with deployed(tmp_path, embedded, sim) as before:
        await before.read(1)
        await until(before.pending)
    with capture_logs() as logs:
        async with deployed(tmp_path, embedded, sim, transport="kafka"):
            pass

    assert [line["events"] for line in logs if line["event"] == "snapshots.events_left_behind"] == [1]


def test_a_migration_to_the_same_transport_is_refused():
    with pytest.raises(ValidationError, match="must differ from transport"):
        SnapshotSettings(previous_transport="streams")
