"""Events on Kafka, for those who have outgrown one machine or want to replay.

Nothing here is imported with this package but its settings: the driver comes with the extra `kafka`.
"""

from tidegate.snapshots.transport.kafka.settings import KafkaSettings

__all__ = ["KafkaSettings"]
