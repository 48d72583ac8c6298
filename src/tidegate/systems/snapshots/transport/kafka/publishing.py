"""Putting messages on topics, so that they are safe when `publish` returns."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from tidegate.core.errors import InvalidArgument
from tidegate.systems.snapshots.transport.kafka.connection import Lazy, client_options, in_our_words, speaking
from tidegate.systems.snapshots.transport.kafka.settings import KafkaSettings
from tidegate.systems.snapshots.transport.protocol import Message

_LAST_MOMENT_S = 2.0


class Publisher:
    """One producer. All replicas in sync have a message before it counts as sent, and a repeated request adds none."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

        def make() -> AIOKafkaProducer:
            return AIOKafkaProducer(
                acks="all", enable_idempotence=True, compression_type="zstd", **client_options(settings)
            )

        self._lazy = Lazy(settings, make, _stop)

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """See `Transport.publish`. A key's messages go to one partition, in their order.

        What was not confirmed in time may still arrive: the producer goes on trying, so that the order is kept.
        """
        producer = await self._lazy.get()
        sent: list[asyncio.Future[object]] = []
        try:
            async with speaking(self._settings, "to publish"):
                try:
                    for key, value in messages:
                        sent.append(await producer.send(topic, value, key=key.encode()))
                    await asyncio.gather(*sent)
                except MessageSizeTooLargeError:
                    raise InvalidArgument("messages", len(messages), "one is larger than Kafka takes") from None
                except KafkaError as error:
                    if not error.retriable:
                        await self._lazy.close()  # such a producer sends nothing any more
                    raise in_our_words(self._settings, "to publish", error) from None
        finally:
            for each in sent:
                each.cancel()

    async def close(self) -> None:
        """Let go of the connection. What is on its way has a moment to arrive."""
        await self._lazy.close()


async def _stop(producer: AIOKafkaProducer) -> None:
    """Stopping waits until everything was sent: for ever, if the cluster is away. We give it a moment, and then up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_MOMENT_S):
            await producer.flush()
    producer._message_accumulator.fail_all(KafkaError("closed"))  # pyright: ignore[reportPrivateUsage]
    try:
        # A request that is being tried again waits for a cluster too, until it is told twice.
        async with asyncio.timeout(_LAST_MOMENT_S / 2):
            await producer.stop()
    finally:
        await producer.client.close()
