"""Which messages of a partition are done, and up to where that may be committed.

Kafka keeps one number per partition and group: everything below it is done. Ours end in any order, so a book notes
which are in hand; what may be committed is the lowest of them, or what comes next if there is none.
"""

from collections.abc import Collection, Mapping
from itertools import count

from tidegate.kernel.errors import InvalidArgument


class Book:
    """One partition, for as long as it is ours without a break."""

    def __init__(self, turn: int, start: int) -> None:
        """`turn` tells this time of ours from others, `start` is the first message of it."""
        self.turn, self.next = turn, start
        self.committed = start
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

    def skip_to(self, offset: int) -> None:
        """Others committed up to here while the partition was theirs: what we hold below it is done."""
        self.committed = max(self.committed, offset)
        self.next = max(self.next, offset)
        for each in [each for each in self._in_hand if each < offset]:
            del self._in_hand[each]


class Books:
    """All partitions of one member. A handle is `partition-turn-offset`."""

    def __init__(self) -> None:
        self._books: dict[int, Book] = {}
        self._turns = count(1)

    @property
    def partitions(self) -> list[int]:
        """Those of which something came."""
        return list(self._books)

    def take(self, partition: int, offset: int) -> str | None:
        """The handle of a message that came; None if it had come before."""
        book = self._books.get(partition)
        if book is None:
            book = self._books[partition] = Book(next(self._turns), offset)
        return f"{partition}-{book.turn}-{offset}" if book.take(offset) else None

    def holds(self, handle: str) -> bool:
        """Whether it is in hand still: not done, and its partition is ours as it was when it came."""
        book, offset = self._find(handle)
        return book is not None and book.holds(offset)

    def done(self, handle: str) -> None:
        """Note that it is done. Nothing happens if its partition has gone to another member: it comes again there."""
        book, offset = self._find(handle)
        if book is not None:
            book.done(offset)

    def keep_only(self, partitions: Collection[int]) -> None:
        """These are ours now. What is still ours goes on as it was; the rest is forgotten."""
        self._books = {number: book for number, book in self._books.items() if number in partitions}

    def skip_to(self, partition: int, offset: int) -> None:
        """See `Book.skip_to`."""
        if book := self._books.get(partition):
            book.skip_to(offset)

    def to_commit(self) -> dict[int, int]:
        """By partition, up to where all is done, where that is news."""
        return {number: book.done_below for number, book in self._books.items() if book.done_below > book.committed}

    def note_committed(self, offsets: Mapping[int, int]) -> None:
        """These were committed."""
        for partition, offset in offsets.items():
            if book := self._books.get(partition):
                book.committed = max(book.committed, offset)

    def _find(self, handle: str) -> tuple[Book | None, int]:
        try:
            partition, turn, offset = map(int, handle.split("-"))
        except ValueError:
            raise InvalidArgument("handle", handle, "is none that this transport gave") from None
        book = self._books.get(partition)
        return (book if book is not None and book.turn == turn else None), offset
