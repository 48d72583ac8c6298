"""Progress of the partitions of one group member: which messages are done, what may be committed, and delivery counts.

Kafka stores one offset per partition and group: everything below it is done. Messages are finished in any order, so
`PartitionOffsets` records which are in progress; the offset that may be committed is the lowest of them, or the next
offset if there is none.

Kafka does not count deliveries. So the metadata of each commit, a text, says whether the partition is in use: `open`,
or `shut` after a member left in order. A member that takes over an open partition does not know which messages the dead
member was processing: all messages up to the end of the partition count as delivered once. Until these are done, each
of them is recorded before it is delivered:

    open 40 0+7:1 12:3      up to 40 messages after the committed one are counted; the first 7 were delivered once, the
                            thirteenth three times

So a message that crashes every process is counted with each of them.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from tidegate.core.errors import InvalidArgument

_MOST_COUNTED = 5_000
"""More messages than a process has in progress in one partition."""
_LONGEST = 3_500
"""Below the default limit of the broker, 4096 bytes."""
_TEXT = re.compile(r"(open|shut)(?: (\d+)((?: \d+(?:\+\d+)?:\d+)*))?")
_RUN = re.compile(r"(\d+)(?:\+(\d+))?:(\d+)")


class DeliveryCounts:
    """Delivery counts of one partition, for as long as it is assigned to this member."""

    def __init__(self, counts: Mapping[int, int] | None = None, counted_below: int = 0) -> None:
        self._counts, self._counted_below = dict(counts or {}), counted_below

    @classmethod
    def read(cls, text: str, committed: int, end: int) -> "DeliveryCounts":
        """Parse the metadata of a commit. `end`: end of the partition, used if its last owner did not shut it."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return cls()
        # All numbers are relative to the committed offset, which keeps the text short.
        counted_below = committed + int(match[2] or 0)
        counts = {
            committed + int(start) + n: int(count)
            for start, length, count in _RUN.findall(match[3] or "")
            for n in range(int(length or 1))
        }
        if match[1] == "open":
            # Messages after the counted ones were not recorded: each of them may have been delivered.
            end = max(counted_below, min(end, committed + _MOST_COUNTED))
            counts |= dict.fromkeys(range(counted_below, end), 1)
            counted_below = end
        return cls(counts, counted_below)

    def is_counted(self, offset: int) -> bool:
        """Return whether a delivery of this message must be recorded first."""
        return offset < self._counted_below

    def begin(self, offset: int) -> int:
        """Count a delivery; return the number of deliveries."""
        times = self._counts.get(offset, 0) + 1
        if self.is_counted(offset):
            self._counts[offset] = times
        return times

    def end(self, offset: int) -> None:
        """Forget the count of a message that is done."""
        self._counts.pop(offset, None)

    def text(self, committed: int, *, is_open: bool, in_hand: Collection[int]) -> str:
        """Return the metadata of a commit. Messages in progress at a graceful leave are not counted."""
        state = "open" if is_open else "shut"
        # Everything that was counted is done: the short form is enough.
        if self._counted_below <= committed:
            return state
        # A graceful leave is not a crash, so the running delivery is taken back.
        back = {} if is_open else dict.fromkeys(in_hand, 1)
        counts = {
            at: left for at, times in self._counts.items() if at >= committed and (left := times - back.get(at, 0))
        }
        runs = _runs(counts, committed)
        while sum(len(each) + 1 for each in runs) > _LONGEST:
            runs.pop()  # keeps the lowest offsets, which have waited longest
        return " ".join([state, str(self._counted_below - committed), *runs])


def is_open(text: str) -> bool:
    """Return whether the last owner of a partition did not leave in order."""
    return text.startswith("open")


def _runs(counts: Mapping[int, int], base: int) -> list[str]:
    runs: list[tuple[int, int, int]] = []
    for offset in sorted(counts):
        # Neighbours with the same count are one run: after a crash, usually all messages were delivered once.
        if runs and runs[-1][0] + runs[-1][1] == offset and runs[-1][2] == counts[offset]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, runs[-1][2])
        else:
            runs.append((offset, 1, counts[offset]))
    return [f"{start - base}{f'+{length}' if length > 1 else ''}:{count}" for start, length, count in runs]


Commit = tuple[int, str]
"""A committed offset and its metadata."""


class PartitionOffsets:
    """Progress of one partition during one assignment."""

    def __init__(
        self, turn: int, start: int, delivery_counts: DeliveryCounts | None = None, known: Commit | None = None
    ) -> None:
        """`turn`: number of the assignment; `start`: first offset; `known`: the last commit that Kafka has."""
        self.turn, self.next = turn, start
        self.committed = start
        self.delivery_counts = delivery_counts or DeliveryCounts()
        self.known = known or (start, "open")
        # Messages arrive in order, so the first key is the lowest.
        self._in_hand: dict[int, None] = {}

    @property
    def done_below(self) -> int:
        """The offset that may be committed: everything below it is done."""
        return next(iter(self._in_hand), self.next)

    def take(self, offset: int) -> bool:
        """Record a received message; False if it was received before."""
        if offset < self.next:
            return False
        self._in_hand[offset] = None
        self.next = offset + 1
        return True

    def holds(self, offset: int) -> bool:
        """Return whether a message was received and is not done."""
        return offset in self._in_hand

    def done(self, offset: int) -> None:
        """Record that a message is done. Idempotent."""
        self._in_hand.pop(offset, None)
        self.delivery_counts.end(offset)

    def to_commit(self, *, is_open: bool) -> Commit:
        """Return what should be committed."""
        # Never backwards: a commit below the last one would deliver finished messages again.
        done_below = max(self.committed, self.done_below)
        return done_below, self.delivery_counts.text(done_below, is_open=is_open, in_hand=self._in_hand)

    def skip_to(self, offset: int) -> None:
        """Apply a commit that another member made during its assignment: everything below `offset` is done."""
        self.committed = max(self.committed, offset)
        self.next = max(self.next, offset)
        for each in [each for each in self._in_hand if each < offset]:
            self.done(each)


class MemberOffsets:
    """Progress of all partitions of one member. A delivery handle is `partition-turn-offset`."""

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionOffsets] = {}
        self._turns = count(1)

    def open(
        self, partition: int, start: int, delivery_counts: DeliveryCounts | None = None, known: Commit | None = None
    ) -> None:
        """Begin an assignment. The partition must not be assigned already: its messages in progress would be lost."""
        assert partition not in self._partitions
        self._partitions[partition] = PartitionOffsets(next(self._turns), start, delivery_counts, known)

    def take(self, partition: int, offset: int) -> str | None:
        """Record a received message; return its handle. None: received before, or not assigned."""
        found = self._partitions.get(partition)
        return f"{partition}-{found.turn}-{offset}" if found is not None and found.take(offset) else None

    def holds(self, handle: str) -> bool:
        """Return whether a delivery is in progress and its partition is still in the same assignment."""
        found, offset = self._find(handle)
        return found is not None and found.holds(offset)

    def begin(self, handle: str) -> tuple[int, bool]:
        """Count a delivery; return the number of deliveries, and whether it must be recorded first."""
        found, offset = self._find(handle)
        return (
            (1, False)
            if found is None
            else (found.delivery_counts.begin(offset), found.delivery_counts.is_counted(offset))
        )

    def done(self, handle: str) -> None:
        """Record that a delivery is done; no effect if its partition went to another member."""
        found, offset = self._find(handle)
        if found is not None:
            found.done(offset)

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget all partitions but these."""
        self._partitions = {number: found for number, found in self._partitions.items() if number in partitions}

    def next(self, partition: int) -> int | None:
        """Return the offset after the last received message; None if the partition is not assigned."""
        found = self._partitions.get(partition)
        return None if found is None else found.next

    def forget(self, partition: int) -> None:
        """Forget the progress of a partition."""
        self._partitions.pop(partition, None)

    def continue_with(self, partition: int, known: Commit) -> None:
        """Continue a partition that stays assigned; `known`: the last commit that Kafka has."""
        found = self._partitions[partition]
        found.known = known
        found.skip_to(known[0])

    def to_commit(self, *, is_open: bool = True) -> dict[int, Commit]:
        """Return the commits that differ from what Kafka has. `is_open=False`: the member leaves in order."""
        wanted = {number: found.to_commit(is_open=is_open) for number, found in self._partitions.items()}
        return {number: commit for number, commit in wanted.items() if commit != self._partitions[number].known}

    def note_committed(self, commits: Mapping[int, Commit]) -> None:
        """Record commits that succeeded."""
        for partition, commit in commits.items():
            if found := self._partitions.get(partition):
                found.known, found.committed = (
                    commit,
                    max(found.committed, commit[0]),
                )

    def _find(self, handle: str) -> tuple[PartitionOffsets | None, int]:
        try:
            partition, turn, offset = map(int, handle.split("-"))
        except ValueError:
            raise InvalidArgument("handle", handle, "is not a handle of this transport") from None
        found = self._partitions.get(partition)
        # The turn tells assignments apart: a partition can go away and come back while a message is in progress.
        return (found if found is not None and found.turn == turn else None), offset


_NEVER: Commit = (-1, "")
"""The commit of a partition without one."""


class PartitionState(NamedTuple):
    """State of a partition when it is assigned: the last commit, and the range of its log."""

    known: Commit
    """The last commit."""
    start: int
    """The first message that is not done."""
    end: int
    """The offset after the last message; `start` if nothing was ever committed."""

    @property
    def lost_its_end(self) -> bool:
        """Whether the log ends below the committed offset: it lost messages with its leader, or was created again."""
        return self.known[0] > self.end

    def delivery_counts(self) -> DeliveryCounts:
        """Return the delivery counts; none if the counted messages were lost."""
        return DeliveryCounts() if self.lost_its_end else DeliveryCounts.read(self.known[1], self.start, self.end)


async def partition_states(
    member: AIOKafkaConsumer, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState]:
    """Read the state of partitions. A log that lost its end is read from its beginning, as the driver does.

    Messages written since then reuse offsets that were done before, so starting later would lose them.
    """
    coordinator: Any = member._coordinator  # pyright: ignore[reportPrivateUsage] - `committed` does not return the metadata
    found: dict[TopicPartition, OffsetAndMetadata] = await coordinator.fetch_committed_offsets(list(partitions))
    commits = {each: (found[each].offset, found[each].metadata) if each in found else _NEVER for each in partitions}
    # A partition without a commit is read from its beginning, so its end is not needed.
    used = [each for each in partitions if each in found]
    ends = await member.end_offsets(used) if used else {}
    afresh = [each for each in partitions if not 0 <= commits[each][0] <= ends.get(each, -1)]
    begins = await member.beginning_offsets(afresh) if afresh else {}
    starts = {each: begins[each] if each in begins else commits[each][0] for each in partitions}
    return {each: PartitionState(commits[each], starts[each], ends.get(each, starts[each])) for each in partitions}
