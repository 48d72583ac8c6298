"""A process that reads messages and never acknowledges them: `python -m … SETTINGS COUNT`."""

import asyncio
import sys

from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.transports.kafka.transport import KafkaTransport
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic


async def main(settings: KafkaSettings, wanted: int) -> None:
    consumer = KafkaTransport(settings).consumer(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])
    found = 0
    while found < wanted:
        found += len(await consumer.read(wanted, 30))
    print("in hand", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(KafkaSettings.model_validate_json(sys.argv[1]), int(sys.argv[2])))
