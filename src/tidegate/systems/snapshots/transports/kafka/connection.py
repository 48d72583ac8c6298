"""Connections to Kafka: client options, time limits, translation of driver errors, and clients that are in no group.

`Publisher` is the producer; `KafkaReader` reads any range of messages.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any, Generic, Protocol, TypeVar, cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition, errors
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.helpers import create_ssl_context

from tidegate.core.backoff import Backoff
from tidegate.core.clock import milliseconds
from tidegate.core.errors import InvalidArgument, ServerRefused, Unavailable
from tidegate.core.telemetry.logs import limit_driver_log
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.protocol import Message

# Below this level the driver logs whole requests, and with them the password.
limit_driver_log("aiokafka", level=logging.WARNING)

CREATE_TOPICS = "Create the topics: tidegate snapshots topics --create"
_STOP_WITHIN_S = 5.0
PAUSES = Backoff(first=timedelta(milliseconds=50), most=timedelta(seconds=1))
"""Pauses between attempts while the cluster is busy."""
_REFUSALS = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.IncompatibleBrokerVersion,
    errors.InvalidReplicationFactorError,
)


class KafkaClient(Protocol):
    """Common interface of the driver's clients."""

    async def start(self) -> None:
        """Connect to the cluster."""
        ...


AnyClient = TypeVar("AnyClient", bound=KafkaClient)
_T = TypeVar("_T")


def client_options(settings: KafkaSettings, *, request_timeout_ms: int | None = None) -> dict[str, Any]:
    """Return the options of every client. The time limit of a request is that of the settings, unless given."""
    options: dict[str, Any] = {
        "bootstrap_servers": [each.strip() for each in settings.servers.split(",")],
        "client_id": "tidegate",
        "security_protocol": settings.security,
        "request_timeout_ms": request_timeout_ms or milliseconds(settings.answer_within),
    }
    if settings.security.endswith("SSL"):
        options["ssl_context"] = _tls(settings)
    if settings.security.startswith("SASL"):
        assert settings.password is not None
        options["sasl_mechanism"] = settings.mechanism
        options["sasl_plain_username"] = settings.user
        options["sasl_plain_password"] = settings.password.get_secret_value()
    return options


@asynccontextmanager
async def translated_errors(settings: KafkaSettings, what: str) -> AsyncGenerator[None]:
    """Limit a block to `answer_within`, and convert its errors to `Unavailable` or `ServerRefused`.

    `what`: the operation, for the message.
    """
    within_s = settings.answer_within.total_seconds()
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        message = f"{settings.address}: {what} took longer than {within_s:g} s"
        raise Unavailable(message, server=settings.address) from None
    except (errors.KafkaError, OSError) as error:
        raise translate(settings, what, error) from None


async def retried(settings: KafkaSettings, what: str, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Return the result of `ask`, repeated while the cluster reports a retriable error."""
    async with translated_errors(settings, what):
        for attempt in count(1):
            try:
                return await ask()
            except errors.KafkaError as error:
                # The driver calls a missing topic retriable, but it does not appear by waiting: an
                # operator has to create it.
                if not error.retriable or isinstance(error, errors.UnknownTopicOrPartitionError):
                    raise
                await asyncio.sleep(PAUSES.delay(attempt).total_seconds())
    raise AssertionError("the loop ends by the time limit")


def translate(settings: KafkaSettings, what: str, error: Exception) -> Unavailable:
    """Convert an error of the driver."""
    name = type(error).__name__
    if isinstance(error, _REFUSALS):
        # Without `what`: one missing permission fails several operations, and the log has one line per reason.
        return ServerRefused(settings.address, name, remedy="Check the permissions of the user, and the settings")
    # Not a refusal: when the topic is created, the next attempt succeeds.
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        name = f"a topic is missing. {CREATE_TOPICS}"
    return Unavailable(f"{settings.address}: {what}: {name}", server=settings.address)


class LazyClient(Generic[AnyClient]):
    """A client that connects on first use, and again after it failed.

    So a process starts, and does everything that does not need Kafka, while Kafka is unavailable.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        make: Callable[[], AnyClient],
        stop: Callable[[AnyClient], Coroutine[Any, Any, None]],
    ) -> None:
        self._settings, self._make, self._stop = settings, make, stop
        self._client: AnyClient | None = None
        self._one = asyncio.Lock()

    async def get(self) -> AnyClient:
        """Return the connected client; raises `Unavailable`."""
        async with self._one:
            if self._client is None:
                client = self._make()
                try:
                    async with translated_errors(self._settings, "to connect"):
                        await client.start()
                # Also after a cancellation: a client that was started halfway has tasks and connections.
                except BaseException:
                    await stop_in_time(self._stop(client))
                    raise
                self._client = client
            return self._client

    async def close(self) -> None:
        """Close the client; the next `get` connects again."""
        async with self._one:
            client, self._client = self._client, None
            if client is not None:
                await stop_in_time(self._stop(client))


async def stop_in_time(stopping: Coroutine[Any, Any, None]) -> None:
    """Stop a client, but not longer than `_STOP_WITHIN_S`."""
    # In a separate task, because the driver may end it with a cancellation.
    task = asyncio.create_task(stopping)
    await asyncio.wait({task}, timeout=_STOP_WITHIN_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer; also close its connections if stopping fails because no broker is available."""
    try:
        await consumer.stop()
    finally:
        await consumer._client.close()  # pyright: ignore[reportPrivateUsage]


def _tls(settings: KafkaSettings) -> ssl.SSLContext:
    return create_ssl_context(cafile=None if settings.ca_file is None else str(settings.ca_file))


_LAST_MOMENT_S = 2.0


class Publisher:
    """An idempotent producer with acks=all: a message is sent when all in-sync replicas have it."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

        def make() -> AIOKafkaProducer:
            return AIOKafkaProducer(
                acks="all", enable_idempotence=True, compression_type="zstd", **client_options(settings)
            )

        self._lazy = LazyClient(settings, make, _stop_producer)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """See `Transport.publish`. Messages with the same key go to one partition, in order.

        A message that was not confirmed in time may still arrive: the producer keeps trying, to preserve the order.
        """
        producer = await self._lazy.get()
        sent: list[asyncio.Future[object]] = []
        try:
            async with translated_errors(self._settings, "to publish"):
                try:
                    for key, value in messages:
                        # `send` only adds to a buffer. The futures end when the broker has confirmed.
                        sent.append(await producer.send(topic, value, key=key.encode()))
                    await asyncio.gather(*sent)
                except MessageSizeTooLargeError:
                    raise InvalidArgument(
                        "messages", len(messages), "one message is larger than the broker accepts"
                    ) from None
                except KafkaError as error:
                    if not error.retriable:
                        await self._lazy.close()  # the producer cannot send any more
                    raise translate(self._settings, "to publish", error) from None
        finally:
            for each in sent:
                # After an error the other futures are not awaited. Cancelled, they do not log
                # "exception was never retrieved".
                each.cancel()

    async def close(self) -> None:
        """Close the producer. Messages in flight have a moment to be sent."""
        await self._lazy.close()


async def _stop_producer(producer: AIOKafkaProducer) -> None:
    """Stop the producer. Its own `stop` would wait forever for unsent messages while the cluster is unavailable."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_MOMENT_S):
            await producer.flush()
    # Nothing can be sent any more. Unsent messages must fail, since `stop` waits for them.
    producer._message_accumulator.fail_all(KafkaError("closed"))  # pyright: ignore[reportPrivateUsage]
    try:
        # A request that is being retried also waits for the cluster, until it is cancelled twice.
        async with asyncio.timeout(_LAST_MOMENT_S / 2):
            await producer.stop()
    finally:
        await producer.client.close()


Span = tuple[int, int]
"""First offset, and the offset after the last."""
Record = ConsumerRecord[bytes, bytes]
_FETCH_WAIT_MS = 100


class KafkaReader:
    """Reads ranges of messages; concurrent calls run one after the other."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._one = asyncio.Lock()

        def make() -> AIOKafkaConsumer:
            return AIOKafkaConsumer(
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=_FETCH_WAIT_MS,
                **client_options(settings),
            )

        self._lazy = LazyClient(settings, make, stop_consumer)

    async def spans(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Span]:
        """Return the current range of each partition."""
        async with self._client("to read offsets") as consumer:
            begins = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
        return {each: (begins[each], ends[each]) for each in partitions}

    async def since(self, partitions: list[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
        """Return for each partition the offset of the first message at or after `at_ms`, or the end."""
        async with self._client("to find offsets by time") as consumer:
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, at_ms))
            ends = await consumer.end_offsets(partitions)
        return {each: ends[each] if (spot := found[each]) is None else spot.offset for each in partitions}

    async def scan(
        self, spans: Mapping[TopicPartition, Span], wanted: Callable[[Record], bool], most: int
    ) -> list[Record]:
        """Return up to `most` messages of each partition for which `wanted` holds, within the given range."""
        left = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        found: dict[TopicPartition, list[Record]] = {partition: [] for partition in left}
        async with self._client("to read") as consumer:
            # Assigned by hand, without a group: the reader commits nothing and does not take part in rebalances.
            consumer.assign(list(left))
            for partition, (begin, _) in left.items():
                consumer.seek(partition, begin)
            while left:
                for partition, records in (await consumer.getmany(timeout_ms=_FETCH_WAIT_MS)).items():
                    _, end = spans[partition]
                    some = cast("list[Record]", records)
                    found[partition] += [each for each in some if each.offset < end and wanted(each)]
                    # Offsets can have gaps, so the end is recognised by the last offset and not by a count.
                    if some[-1].offset + 1 >= end or len(found[partition]) >= most:
                        left.pop(partition, None)
                        # Stop fetching this partition, while the others are still read.
                        consumer.pause(partition)
        return [each for records in found.values() for each in records[:most]]

    async def close(self) -> None:
        """Close the connection, if open."""
        await self._lazy.close()

    @asynccontextmanager
    async def _client(self, what: str) -> AsyncGenerator[AIOKafkaConsumer]:
        async with self._one:
            consumer = await self._lazy.get()
            async with translated_errors(self._settings, what):
                yield consumer
