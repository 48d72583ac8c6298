"""Kafka, where its driver is installed."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidegate.core.errors import InvalidSettings
from tidegate.systems.snapshots.transport.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from tidegate.systems.snapshots.transport.kafka.transport import KafkaTransport


def open_kafka(settings: KafkaSettings) -> "KafkaTransport":
    """The transport; close it in the end. Raises `InvalidSettings` when its driver is not installed."""
    # cramjam compresses for it; without, it fails at the first message.
    if find_spec("aiokafka") is None or find_spec("cramjam") is None:
        raise InvalidSettings('events on Kafka need the driver aiokafka: pip install "tidegate[kafka]"')
    from tidegate.systems.snapshots.transport.kafka.transport import KafkaTransport

    return KafkaTransport(settings)
