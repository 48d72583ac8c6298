"""The issues and pull requests of one repository: one series of numbers, kept in columns, as there may be many."""

from array import array
from dataclasses import dataclass
from enum import IntEnum

from tidegate_simulators.draws import draw
from tidegate_simulators.github.config import Sizes
from tidegate_simulators.github.draws import DAY_S, moments


class Kind(IntEnum):
    """What a number stands for."""

    ISSUE = 0
    PULL = 1
    MERGED_PULL = 2


@dataclass(frozen=True)
class Gone:
    """Why a number answers no more: deleted, or transferred to another repository's number."""

    repository_id: int | None = None
    number: int | None = None


class Threads:
    """All numbers of a repository; the columns are indexed by number, and number 0 is unused."""

    def __init__(self, key: int, sizes: Sizes, start: int, end: int) -> None:
        self.key = key
        count = sizes.issues + sizes.pulls
        self.created = array("q", [0, *moments(key, count, start, end)])
        self.updated = array("q", self.created)
        self.closed = array("q", bytes(8 * (count + 1)))  # 0: open
        self.kinds = bytearray(count + 1)
        self.replies = array("I", bytes(4 * (count + 1)))
        self.gone: dict[int, Gone] = {}
        self.edits: dict[int, int] = {}
        """How often a title was edited, by number."""
        self.authors: dict[int, int] = {}
        """Ids of authors that were not drawn."""
        for number in range(1, count + 1):
            is_pull = number * sizes.pulls // count != (number - 1) * sizes.pulls // count
            self._generate(number, end, is_pull=is_pull)

    def _generate(self, number: int, end: int, *, is_pull: bool) -> None:
        bits = draw(self.key, number, 7)
        closed_at = self.created[number] + bits % (60 * DAY_S)
        if bits >> 32 & 7 and closed_at <= end:
            self.closed[number] = self.updated[number] = closed_at
        if is_pull:
            merged = self.closed[number] and bits >> 40 & 3
            self.kinds[number] = Kind.MERGED_PULL if merged else Kind.PULL

    def __len__(self) -> int:
        return len(self.created) - 1

    def numbers(self) -> list[int]:
        """Every number that still answers, in order."""
        return [number for number in range(1, len(self.created)) if number not in self.gone]

    def pulls(self) -> list[int]:
        """The numbers of pull requests, in order."""
        kinds, gone = self.kinds, self.gone
        return [number for number in range(1, len(kinds)) if kinds[number] and number not in gone]

    def has(self, number: int) -> bool:
        """Whether there is such an issue or pull request now."""
        return 0 < number < len(self.created) and number not in self.gone

    def touch(self, number: int, at: int) -> None:
        """Something happened to it."""
        self.updated[number] = max(self.updated[number], at)

    def open(self, at: int, *, is_pull: bool = False, author_id: int | None = None) -> int:
        """A new one, and its number."""
        for column, value in ((self.created, at), (self.updated, at), (self.closed, 0), (self.replies, 0)):
            column.append(value)
        self.kinds.append(Kind.PULL if is_pull else Kind.ISSUE)
        number = len(self)
        if author_id is not None:
            self.authors[number] = author_id
        return number

    def close(self, number: int, at: int, *, merged: bool = False) -> None:
        """Close it, or merge it."""
        self.closed[number] = at
        if merged:
            self.kinds[number] = Kind.MERGED_PULL
        self.touch(number, at)

    def reopen(self, number: int, at: int) -> None:
        """Open a closed thread again."""
        self.closed[number] = 0
        self.touch(number, at)

    def edit(self, number: int, at: int) -> None:
        """Give it another title."""
        self.edits[number] = self.edits.get(number, 0) + 1
        self.touch(number, at)
