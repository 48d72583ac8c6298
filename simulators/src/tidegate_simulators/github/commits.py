"""The history of one repository's default branch: a generated line of commits, and what was pushed onto it since."""

import heapq
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate_simulators.draws import draw
from tidegate_simulators.github.draws import DAY_S, moments

Ref = int | str
"""A generated commit by its index, a pushed one by its sha."""


@dataclass(frozen=True)
class Pushed:
    """A commit that was not generated."""

    sha: str
    ordinal: int
    parents: tuple[str, ...]
    authored: int
    committed: int
    author_id: int | None


class History:
    """Commits and their parents. Lists go from the tip to the root, newest committer date first, as git walks."""

    def __init__(self, key: int, count: int, start: int, end: int) -> None:
        self.key = key
        self._mask = draw(key, 11) & 0xFFFFFFFF
        self.dates = array("q", moments(key, count, start, end))
        self.pushed: dict[str, Pushed] = {}
        self.head: str | None = self.sha(count - 1) if count else None

    def __len__(self) -> int:
        return len(self.dates) + len(self.pushed)

    def sha(self, ref: Ref) -> str:
        """The name of a commit; that of a generated one carries its index, so that it is found without a table."""
        if isinstance(ref, str):
            return ref
        high, low = draw(self.key, ref, 12), draw(self.key, ref, 13)
        return f"{high:016x}{low:016x}{ref ^ self._mask:08x}"

    def find(self, sha: str) -> Ref | None:
        """The commit with this name."""
        if sha in self.pushed:
            return sha
        try:
            index = int(sha[32:], 16) ^ self._mask
        except ValueError:
            return None
        return index if 0 <= index < len(self.dates) and self.sha(index) == sha else None

    def committed(self, ref: Ref) -> int:
        """Return the date of the committer."""
        return self.pushed[ref].committed if isinstance(ref, str) else self.dates[ref]

    def authored(self, ref: Ref) -> int:
        """The author date: never after the committer date."""
        if isinstance(ref, str):
            return self.pushed[ref].authored
        bits = draw(self.key, ref, 14)
        return self.dates[ref] - (bits % (5 * DAY_S) if bits >> 32 & 3 == 0 else 0)

    def parents(self, ref: Ref) -> tuple[str, ...]:
        """The shas of its parents."""
        if isinstance(ref, str):
            return self.pushed[ref].parents
        return (self.sha(ref - 1),) if ref else ()

    def walk(self, tip: str | None) -> Sequence[Ref]:
        """Everything reachable from `tip`, a child always before its parents."""
        first = self.find(tip) if tip else None
        if first is None:
            return []
        heap, seen, walked = [self._entry(first)], {first}, list[Ref]()
        while heap:
            _, _, ref = heapq.heappop(heap)
            if isinstance(ref, int) and not heap:  # only the generated line is left, and it is in order
                return [*walked, *range(ref, -1, -1)]
            walked.append(ref)
            for parent in map(self.find, self.parents(ref)):
                if parent is not None and parent not in seen:
                    seen.add(parent)
                    heapq.heappush(heap, self._entry(parent))
        return walked

    def _entry(self, ref: Ref) -> tuple[int, int, Ref]:
        """Newest first; among equals a pushed one before a generated one, and the later pushed one first."""
        order = -ref if isinstance(ref, int) else -(1 << 40) - self.pushed[ref].ordinal
        return -self.committed(ref), order, ref

    def push(self, at: int, *, author_id: int | None = None, parents: tuple[str, ...] | None = None) -> str:
        """A commit dated `at` on top of the branch (or on `parents`), which it becomes the head of."""
        before = parents if parents is not None else ((self.head,) if self.head else ())
        salt = len(self.pushed)
        sha = f"{draw(self.key, at, salt, 15):016x}{draw(self.key, at, salt, 16):016x}{draw(self.key, salt) >> 32:08x}"
        self.pushed[sha] = Pushed(sha, salt, before, at, at, author_id)
        self.head = sha
        return sha

    def push_late(self, count: int, old: int, at: int) -> list[str]:
        """`count` commits dated `old`, kept on a branch and merged at `at`: only the merge is new by its date."""
        trunk = self.head
        base = next((ref for ref in self.walk(trunk) if self.committed(ref) <= old), None)
        branch: tuple[str, ...] = () if base is None else (self.sha(base),)
        late: list[str] = []
        for _ in range(count):
            late.append(self.push(old, parents=branch))
            branch = (late[-1],)
        merge = self.push(at, parents=tuple(sha for sha in (trunk, *branch) if sha))
        return [*late, merge]
