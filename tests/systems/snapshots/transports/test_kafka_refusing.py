"""A broker with an authorizer that denies rights to our user for a while."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.servers.kafka import GROUP, PASSWORD, READ, TOPIC, WRITE, Broker, broker
from tests.servers.refusing import Lines, Waits, lines_of_outage, noise, short_pauses, told
from tests.systems.snapshots.deployment import Deployment, deployed
from tests.systems.snapshots.transports.test_kafka_deployment import nothing_waits
from tests.waiting import look_again, until
from tidegate.core.errors import ServerRefused
from tidegate.core.priority import Priority
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate_simulators.game import GameSimulator

pytestmark = pytest.mark.usefixtures("logged")


@pytest.fixture
def server() -> Broker:
    return broker()


@pytest.fixture
def settings(server: Broker) -> KafkaSettings:
    return server.settings_with_password(PASSWORD)


@pytest.fixture
async def deployment(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator, server: Broker, settings: KafkaSettings
) -> AsyncGenerator[Deployment]:
    async with deployed(tmp_path, embedded, sim, transport="kafka", kafka=settings) as opened:
        await opened.snapshots.transport.create_topics()
        yield opened
    await server.forget(server.settings().model_copy(update={"prefix": settings.prefix}))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return short_pauses(monkeypatch)


def refresh_request(key: int) -> RefreshRequest:
    return RefreshRequest(
        subject=SnapshotSubject("character", str(key)), priority=Priority.HIGH, reason=Reason.USER_REQUEST
    )


def assert_reported_once(lines: Lines, settings: KafkaSettings, error: str) -> None:
    [refused] = told(lines, "server.refused")
    assert refused.startswith(f"Kafka at {settings.servers}: ")
    assert f"{error}. Check the permissions of the user" in refused
    assert lines_of_outage(lines) == ["server.refused", "server.back"]
    assert noise(lines) == []


async def test_requests_are_published_when_the_user_may_write_again(
    deployment: Deployment, server: Broker, settings: KafkaSettings
):
    """Readers are answered meanwhile. No lock stays behind, so the next reader asks again."""
    async with deployment.working():
        await deployment.until_fresh(1)
        with capture_logs() as lines:
            await server.deny(settings, TOPIC, WRITE)
            while True:  # a broker applies a rule a moment after it accepted it
                try:
                    await deployment.snapshots.requests.publish(refresh_request(2))
                except ServerRefused:
                    break
                await look_again()
            for key in range(100, 150):
                await deployment.read(key)
            await server.allow(settings, TOPIC, WRITE)
            for key in (3, 100, 149):
                assert deployment.is_true(key, await deployment.until_fresh(key))
            await until(lambda: nothing_waits(deployment))

    assert [deployment.sim.calls_of(key) for key in (1, 3, 100, 149)] == [1] * 4
    assert_reported_once(lines, settings, "TopicAuthorizationFailedError")


@pytest.mark.parametrize("resource", [TOPIC, GROUP], ids=["topic", "group"])
async def test_events_are_read_once_when_the_user_may_read_again(
    deployment: Deployment, server: Broker, settings: KafkaSettings, waits: Waits, resource: int
):
    async with deployment.working():
        await deployment.until_fresh(1)
        await until(lambda: nothing_waits(deployment))
        with capture_logs() as lines:
            await server.deny(settings, resource, READ)
            await until(lambda: waits.longest >= 5)
            await deployment.snapshots.requests.publish(refresh_request(2))
            await server.allow(settings, resource, READ)
            assert deployment.is_true(2, await deployment.until_fresh(2))
            await until(lambda: nothing_waits(deployment))
            await until(lambda: "server.back" in lines_of_outage(lines))

    assert [deployment.sim.calls_of(key) for key in (1, 2)] == [1, 1]
    assert_reported_once(lines, settings, f"{'Topic' if resource == TOPIC else 'Group'}AuthorizationFailedError")
