"""Which messages of a partition are done, and up to where that may be committed.

Kafka keeps one number per partition and group: everything below it is done. Ours end in any order, so a book notes
which are in hand; what may be committed is the lowest of them, or what comes next if there is none.
"""

from collections.abc import Collection, Mapping
from itertools import count

from tidegate.core.errors import InvalidArgument
from tidegate.systems.snapshots.transport.kafka.attempts import Attempts

Commit = tuple[int, str]
"""Up to where all is done, and what stands beside it (see `attempts`)."""


class Book:
    """One partition, for as long as it is ours without a break."""

    def __init__(self, turn: int, start: int, attempts: Attempts | None = None, known: Commit | None = None) -> None:
        """`turn` tells this time of ours from others, `start` is its first message, `known` what Kafka has of it."""
        self.turn, self.next = turn, start
        self.committed = start
        self.attempts = attempts or Attempts()
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


class Books:
    """All partitions of one member. A handle is `partition-turn-offset`."""

    def __init__(self) -> None:
        self._books: dict[int, Book] = {}
        self._turns = count(1)

    def open(self, partition: int, start: int, attempts: Attempts | None = None, known: Commit | None = None) -> None:
        """A partition is ours from now on, and was not before: what is in hand of one that was would be lost."""
        assert partition not in self._books
        self._books[partition] = Book(next(self._turns), start, attempts, known)

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

    def _find(self, handle: str) -> tuple[Book | None, int]:
        try:
            partition, turn, offset = map(int, handle.split("-"))
        except ValueError:
            raise InvalidArgument("handle", handle, "is none that this transport gave") from None
        book = self._books.get(partition)
        return (book if book is not None and book.turn == turn else None), offset
