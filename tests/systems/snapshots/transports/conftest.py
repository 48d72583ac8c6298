"""Every transport in turn. To add one: a function that opens a `Bench` of it, and a line in `BENCHES`."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from tests.servers.kafka import broker
from tests.servers.valkey import ALL_VALKEY, empty_valkey
from tidegate.systems.snapshots.transports.kafka.connection import stop_consumer
from tidegate.systems.snapshots.transports.kafka.transport import KafkaTransport
from tidegate.systems.snapshots.transports.opening import MigratingTransport
from tidegate.systems.snapshots.transports.protocol import Transport
from tidegate.systems.snapshots.transports.streams import StreamTransport


@dataclass(frozen=True)
class TransportHarness:
    """A transport with empty topics, and what a test may do to it."""

    transport: Transport
    another_process: Callable[[], AbstractAsyncContextManager[Transport]]
    """A transport on the same topics, as another process has it."""
    bury: Callable[[Transport], Awaitable[None]]
    """Do what happens when the process of this transport died with everything it held: others are given it."""


@asynccontextmanager
async def on_streams(server: str, request: pytest.FixtureRequest) -> AsyncGenerator[TransportHarness]:
    async with empty_valkey(request.getfixturevalue(f"{server}_url")) as valkey:
        unit = valkey.unit("snapshots")

        def named(owner: str) -> StreamTransport:
            return StreamTransport(valkey, unit, owner)

        @asynccontextmanager
        async def another() -> AsyncGenerator[Transport]:
            yield named("another")

        async def bury(dead: Transport) -> None:
            assert isinstance(dead, StreamTransport)
            for stream in dead.recoverable:
                await stream.take_over("another")

        yield TransportHarness(named("ours"), another, bury)


@asynccontextmanager
async def on_kafka(request: pytest.FixtureRequest) -> AsyncGenerator[TransportHarness]:
    del request
    server = broker()
    settings = server.settings()

    @asynccontextmanager
    async def another() -> AsyncGenerator[Transport]:
        transport = KafkaTransport(settings)
        yield transport
        await transport.close()

    async def bury(dead: Transport) -> None:
        """Its members are silent from now on, and do not say that they leave: they are missed after a while."""
        assert isinstance(dead, KafkaTransport)
        for consumer in dead._consumers:  # pyright: ignore[reportPrivateUsage]
            member, consumer._member = consumer._member, None  # pyright: ignore[reportPrivateUsage]
            assert member is not None
            member._coordinator.generation = -1  # pyright: ignore - who is of no generation has nothing to leave
            await stop_consumer(member)

    yield TransportHarness(KafkaTransport(settings), another, bury)
    await server.forget(settings)


@asynccontextmanager
async def on_the_move(request: pytest.FixtureRequest) -> AsyncGenerator[TransportHarness]:
    """From one stream to another: what is published goes to the new one, and that is what is read."""
    async with empty_valkey(request.getfixturevalue("embedded_url")) as valkey:

        def named(owner: str) -> MigratingTransport:
            new, previous = (StreamTransport(valkey, valkey.unit(unit), owner) for unit in ("new", "previous"))
            return MigratingTransport(new, previous)

        @asynccontextmanager
        async def another() -> AsyncGenerator[Transport]:
            yield named("another")

        async def bury(dead: Transport) -> None:
            for stream in dead.recoverable:
                await stream.take_over("another")

        yield TransportHarness(named("ours"), another, bury)


BENCHES = {
    **{f"streams-{server}": partial(on_streams, server) for server in ALL_VALKEY},
    "moving": on_the_move,
    "kafka": on_kafka,
}


@pytest.fixture(params=BENCHES)
async def harness(request: pytest.FixtureRequest) -> AsyncGenerator[TransportHarness]:
    async with BENCHES[request.param](request) as opened:
        await opened.transport.start()
        await opened.transport.create_topics()
        yield opened
        await opened.transport.close()


@pytest.fixture
def transport(harness: TransportHarness) -> Transport:
    return harness.transport
