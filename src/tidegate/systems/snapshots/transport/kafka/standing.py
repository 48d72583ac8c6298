"""How a partition stands when it is given to us: what others committed, and where its log begins and ends."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from tidegate.systems.snapshots.transport.kafka.attempts import Attempts
from tidegate.systems.snapshots.transport.kafka.books import Commit

_NEVER: Commit = (-1, "")
"""What Kafka has of a partition of which nothing was ever committed."""


class Standing(NamedTuple):
    """Of one partition."""

    known: Commit
    """What Kafka has of it."""
    start: int
    """Its first message that is not done."""
    end: int
    """Behind its last message; `start` where nothing was ever committed."""

    @property
    def lost_its_end(self) -> bool:
        """What was committed is not there: a broker without the last messages leads it, or it was made anew."""
        return self.known[0] > self.end

    def attempts(self) -> Attempts:
        """How often its messages were handed out. What stands there of messages that are lost is of no others."""
        return Attempts() if self.lost_its_end else Attempts.read(self.known[1], self.start, self.end)


async def standings(member: AIOKafkaConsumer, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Standing]:
    """Of all of these. Where the log lost its end it is read from its beginning, as the driver does.

    What was written there since has offsets that were done once: beginning later would lose it, and nobody knows which.
    """
    coordinator: Any = member._coordinator  # pyright: ignore[reportPrivateUsage] - `committed` leaves out the text
    found: dict[TopicPartition, OffsetAndMetadata] = await coordinator.fetch_committed_offsets(list(partitions))
    commits = {each: (found[each].offset, found[each].metadata) if each in found else _NEVER for each in partitions}
    used = [each for each in partitions if each in found]
    ends = await member.end_offsets(used) if used else {}
    afresh = [each for each in partitions if not 0 <= commits[each][0] <= ends.get(each, -1)]
    begins = await member.beginning_offsets(afresh) if afresh else {}
    starts = {each: begins[each] if each in begins else commits[each][0] for each in partitions}
    return {each: Standing(commits[each], starts[each], ends.get(each, starts[each])) for each in partitions}
