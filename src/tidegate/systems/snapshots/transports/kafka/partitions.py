"""Which messages of a partition are done, and up to where that may be committed.

Kafka keeps one number per partition and group: everything below it is done. Ours end in any order, so a book notes
which are in hand; what may be committed is the lowest of them, or what comes next if there is none.

How often messages were handed out to processes that died with them.

Kafka does not count deliveries, so we do, in the text that it keeps beside each commit. While all goes well that text
only says that the partition is in use: `open`, or `shut` by a member that left in order, and costs nothing. Whoever is
given a partition that a dead member left open does not know what it had in hand: everything up to the partition's end
counts as handed out once. From then on, until all of that is done, each message is noted before it is handed out:

    open 40 0+7:1 12:3      up to 40 messages behind the committed one are watched; the first 7 were handed out once,
                            the thirteenth three times

So one that kills every process it is given to is counted with each, whoever they are.


How a partition stands when it is given to us: what others committed, and where its log begins and ends.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from tidegate.core.errors import InvalidArgument

_MOST_WATCHED = 5_000
"""More than a process has in hand of one partition."""
_LONGEST = 3_500
"""Kafka takes 4096 bytes, unless it was told otherwise."""
_TEXT = re.compile(r"(open|shut)(?: (\d+)((?: \d+(?:\+\d+)?:\d+)*))?")
_RUN = re.compile(r"(\d+)(?:\+(\d+))?:(\d+)")


class DeliveryCounts:
    """Of one partition, for as long as it is ours."""

    def __init__(self, counts: Mapping[int, int] | None = None, watched_below: int = 0) -> None:
        self._counts, self._watched_below = dict(counts or {}), watched_below

    @classmethod
    def read(cls, text: str, committed: int, end: int) -> "DeliveryCounts":
        """From what stands beside a commit. `end`: of the partition, where its last owner did not shut it."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return cls()
        watched_below = committed + int(match[2] or 0)
        counts = {
            committed + int(start) + n: int(count)
            for start, length, count in _RUN.findall(match[3] or "")
            for n in range(int(length or 1))
        }
        if match[1] == "open":
            # Behind what was watched nobody noted anything: any of it may have been in hand.
            end = max(watched_below, min(end, committed + _MOST_WATCHED))
            counts |= dict.fromkeys(range(watched_below, end), 1)
            watched_below = end
        return cls(counts, watched_below)

    def is_watched(self, offset: int) -> bool:
        """Whether it must be noted that this one is handed out."""
        return offset < self._watched_below

    def begin(self, offset: int) -> int:
        """It is handed out; the how-maniest time."""
        times = self._counts.get(offset, 0) + 1
        if self.is_watched(offset):
            self._counts[offset] = times
        return times

    def end(self, offset: int) -> None:
        """It is done."""
        self._counts.pop(offset, None)

    def text(self, committed: int, *, is_open: bool, in_hand: Collection[int]) -> str:
        """What is to stand beside a commit. What a member that leaves in order had in hand does not count."""
        state = "open" if is_open else "shut"
        if self._watched_below <= committed:
            return state
        back = {} if is_open else dict.fromkeys(in_hand, 1)
        counts = {
            at: left for at, times in self._counts.items() if at >= committed and (left := times - back.get(at, 0))
        }
        runs = _runs(counts, committed)
        while sum(len(each) + 1 for each in runs) > _LONGEST:
            runs.pop()  # the lowest come first: those have waited longest
        return " ".join([state, str(self._watched_below - committed), *runs])


def is_open(text: str) -> bool:
    """Whether the partition's last owner did not say that it left."""
    return text.startswith("open")


def _runs(counts: Mapping[int, int], base: int) -> list[str]:
    runs: list[tuple[int, int, int]] = []
    for offset in sorted(counts):
        if runs and runs[-1][0] + runs[-1][1] == offset and runs[-1][2] == counts[offset]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, runs[-1][2])
        else:
            runs.append((offset, 1, counts[offset]))
    return [f"{start - base}{f'+{length}' if length > 1 else ''}:{count}" for start, length, count in runs]


Commit = tuple[int, str]
"""Up to where all is done, and what stands beside it (see `attempts`)."""


class PartitionOffsets:
    """One partition, for as long as it is ours without a break."""

    def __init__(
        self, turn: int, start: int, attempts: DeliveryCounts | None = None, known: Commit | None = None
    ) -> None:
        """`turn` tells this time of ours from others, `start` is its first message, `known` what Kafka has of it."""
        self.turn, self.next = turn, start
        self.committed = start
        self.attempts = attempts or DeliveryCounts()
        self.known = known or (start, "open")
        # Messages are taken in their order, so the first key is the lowest.
        self._in_hand: dict[int, None] = {}

    @property
    def done_below(self) -> int:
        """Everything below is done: what may be committed."""
        return next(iter(self._in_hand), self.next)

    def take(self, offset: int) -> bool:
        """Note that this message came; False if it had come before, and is in hand or done."""
        if offset < self.next:
            return False
        self._in_hand[offset] = None
        self.next = offset + 1
        return True

    def holds(self, offset: int) -> bool:
        """It came, and is not done."""
        return offset in self._in_hand

    def done(self, offset: int) -> None:
        """Note that this message is done; one that is not in hand is done already."""
        self._in_hand.pop(offset, None)
        self.attempts.end(offset)

    def to_commit(self, *, is_open: bool) -> Commit:
        """What Kafka should have of it."""
        done_below = max(self.committed, self.done_below)
        return done_below, self.attempts.text(done_below, is_open=is_open, in_hand=self._in_hand)

    def skip_to(self, offset: int) -> None:
        """Others committed up to here while the partition was theirs: what we hold below it is done."""
        self.committed = max(self.committed, offset)
        self.next = max(self.next, offset)
        for each in [each for each in self._in_hand if each < offset]:
            self.done(each)


class MemberOffsets:
    """All partitions of one member. A handle is `partition-turn-offset`."""

    def __init__(self) -> None:
        self._books: dict[int, PartitionOffsets] = {}
        self._turns = count(1)

    def open(
        self, partition: int, start: int, attempts: DeliveryCounts | None = None, known: Commit | None = None
    ) -> None:
        """A partition is ours from now on, and was not before: what is in hand of one that was would be lost."""
        assert partition not in self._books
        self._books[partition] = PartitionOffsets(next(self._turns), start, attempts, known)

    def take(self, partition: int, offset: int) -> str | None:
        """The handle of a message that came; None if it had come before, or its partition is not ours."""
        book = self._books.get(partition)
        return f"{partition}-{book.turn}-{offset}" if book is not None and book.take(offset) else None

    def holds(self, handle: str) -> bool:
        """Whether it is in hand still: not done, and its partition is ours as it was when it came."""
        book, offset = self._find(handle)
        return book is not None and book.holds(offset)

    def begin(self, handle: str) -> tuple[int, bool]:
        """It is handed out: the how-maniest time, and whether that must be noted first."""
        book, offset = self._find(handle)
        return (1, False) if book is None else (book.attempts.begin(offset), book.attempts.is_watched(offset))

    def done(self, handle: str) -> None:
        """Note that it is done. Nothing happens if its partition has gone to another member: it comes again there."""
        book, offset = self._find(handle)
        if book is not None:
            book.done(offset)

    def keep_only(self, partitions: Collection[int]) -> None:
        """These are ours now. What is still ours goes on as it was; the rest is forgotten."""
        self._books = {number: book for number, book in self._books.items() if number in partitions}

    def next(self, partition: int) -> int | None:
        """Behind the last message that came; None: it was not ours."""
        book = self._books.get(partition)
        return None if book is None else book.next

    def forget(self, partition: int) -> None:
        """What came of it is no longer ours."""
        self._books.pop(partition, None)

    def go_on(self, partition: int, known: Commit) -> None:
        """It is still ours; this is what Kafka has of it by now, whoever committed it."""
        book = self._books[partition]
        book.known = known
        book.skip_to(known[0])

    def to_commit(self, *, is_open: bool = True) -> dict[int, Commit]:
        """By partition what Kafka should have, where that is news. Not `is_open`: we leave in order."""
        wanted = {number: book.to_commit(is_open=is_open) for number, book in self._books.items()}
        return {number: commit for number, commit in wanted.items() if commit != self._books[number].known}

    def note_committed(self, commits: Mapping[int, Commit]) -> None:
        """These were committed."""
        for partition, commit in commits.items():
            if book := self._books.get(partition):
                book.known, book.committed = commit, max(book.committed, commit[0])

    def _find(self, handle: str) -> tuple[PartitionOffsets | None, int]:
        try:
            partition, turn, offset = map(int, handle.split("-"))
        except ValueError:
            raise InvalidArgument("handle", handle, "is none that this transport gave") from None
        book = self._books.get(partition)
        return (book if book is not None and book.turn == turn else None), offset


_NEVER: Commit = (-1, "")
"""What Kafka has of a partition of which nothing was ever committed."""


class PartitionState(NamedTuple):
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

    def attempts(self) -> DeliveryCounts:
        """How often its messages were handed out. What stands there of messages that are lost is of no others."""
        return DeliveryCounts() if self.lost_its_end else DeliveryCounts.read(self.known[1], self.start, self.end)


async def standings(
    member: AIOKafkaConsumer, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState]:
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
    return {each: PartitionState(commits[each], starts[each], ends.get(each, starts[each])) for each in partitions}
