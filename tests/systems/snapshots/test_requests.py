"""Requests: one publishes for all; a publish that fails leaves no lock, and earlier events valid."""

import asyncio

import msgspec
import pytest

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer
from tests.systems.snapshots.deployment import Deployment
from tidegate.core.errors import Unavailable
from tidegate.core.priority import Priority
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer, Published
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.snapshots.events import Reason, RefreshEvent
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.requests import RefreshPublisher, RefreshRequest
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic
from tidegate.systems.snapshots.transports.streams import StreamTransport
from tidegate.systems.snapshots.valkey_guard import ValkeyGuard


class Apart(StreamTransport):
    """Has events published in a step of their own, as a transport has to that is not on the Valkey server."""

    def stream_of(self, topic: RefreshTopic) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        del topic


def refresh_request(key: int, priority: Priority = Priority.HIGH) -> RefreshRequest:
    subject = SnapshotSubject("character", str(key))
    return RefreshRequest(subject=subject, priority=priority, reason=Reason.STALE, upstream_id="u", correlation_id="c")


async def test_of_concurrent_requests_one_publishes(deployment: Deployment):
    outcomes = await asyncio.gather(*(deployment.snapshots.requests.publish(refresh_request(7)) for _ in range(100)))

    assert sum(isinstance(outcome, Published) for outcome in outcomes) == 1
    assert len({outcome.version for outcome in outcomes}) == 1
    consumer = deployment.snapshots.transport.consumer(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])
    [delivery] = await consumer.read(10, 1)
    event = RefreshEvent.decode(delivery.value)
    assert (delivery.key, event.subject_id, event.version) == ("character/7", "character/7", outcomes[0].version)
    assert (event.priority, event.reason, event.upstream_id, event.correlation_id) == (
        *(Priority.HIGH, Reason.STALE),
        *("u", "c"),
    )


async def test_many_requests_go_to_the_topics_of_their_priorities(deployment: Deployment):
    refresh_requests = [refresh_request(n, Priority.HIGH if n % 3 else Priority.LOW) for n in range(1, 31)]
    outcomes = await deployment.snapshots.requests.publish_many([*refresh_requests, refresh_requests[0]])

    assert all(isinstance(outcome, Published) for outcome in outcomes[1:-1])
    assert {type(outcomes[0]), type(outcomes[-1])} == {Published, AlreadyProcessing}, "whichever of the two came first"
    lags = [await deployment.snapshots.transport.lag(topic, group) for topic, group in GROUPS.items()]
    assert lags == [20, 10]


async def test_a_failed_publish_releases_the_lock_and_makes_nothing_obsolete():
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with (
            Proxy(port) as proxy,
            connected(f"redis://127.0.0.1:{port}") as direct,
            connected(f"redis://127.0.0.1:{proxy.port}") as through,
        ):
            coalescer, unit = Coalescer(direct), direct.unit("snapshots")
            server = ValkeyGuard(direct, CircuitBreaker("valkey"), direct.unit("snapshots"))
            broken = RefreshPublisher(coalescer, Apart(through, unit, "ours"), server)
            whole = RefreshPublisher(coalescer, Apart(direct, unit, "ours"), server)
            low = await whole.publish(refresh_request(7, Priority.LOW))
            await proxy.refuse()
            with pytest.raises(Unavailable):
                await broken.publish(refresh_request(7))
            [error] = await broken.publish_many([refresh_request(8)])
            is_lost = await coalescer.is_obsolete("character/7", low.version)

            again = await whole.publish(refresh_request(7))
            is_overtaken = await coalescer.is_obsolete("character/7", low.version)

    assert isinstance(error, Unavailable)
    assert not is_lost, "what was queued before would be skipped, and nothing done in its place"
    assert isinstance(again, Published)
    assert is_overtaken


async def test_a_publish_without_confirmation_is_still_published(embedded: Valkey, monkeypatch: pytest.MonkeyPatch):
    async def away(*_: object) -> list[bool]:
        raise Unavailable("Valkey is away")

    monkeypatch.setattr(Coalescer, "confirm_many", away)
    unit = embedded.unit("snapshots")
    transport, server = Apart(embedded, unit, "ours"), ValkeyGuard(embedded, CircuitBreaker("valkey"), unit)
    outcome = await RefreshPublisher(Coalescer(embedded), transport, server).publish(refresh_request(7))

    assert isinstance(outcome, Published)
    assert await transport.lag(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH]) == 1


async def test_lock_and_event_are_one_step_and_the_event_is_complete(deployment: Deployment):
    """There is no moment in which a process could die with a lock and no event."""
    asked = msgspec.structs.replace(refresh_request(7), upstream_id="seven", correlation_id="c")
    outcome = await deployment.snapshots.requests.publish(asked)
    consumer = deployment.snapshots.transport.consumer(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])
    [delivery] = await consumer.read(10, 1)
    await consumer.leave()

    event = RefreshEvent.decode(delivery.value)
    assert isinstance(outcome, Published)
    assert (event.subject, event.version, event.priority) == (asked.subject, outcome.version, Priority.HIGH)
    assert (event.reason, event.upstream_id, event.correlation_id) == (asked.reason, "seven", "c")
    assert RefreshEvent.decode(event.encode()) == event
