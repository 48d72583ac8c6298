"""Events on Kafka, for those who have outgrown one machine or want to replay.

Nothing here is imported with this package but its settings: the driver comes with the extra `kafka`.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.snapshots.transport.kafka.settings import KafkaSettings

__all__ = ["KafkaSettings"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.snapshots.transport.kafka.settings": "KafkaSettings",
    },
)
