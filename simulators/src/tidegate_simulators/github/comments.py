"""Comments, review comments and reviews of issues and pull requests; all have the same structure."""

from array import array
from collections.abc import Sequence

from tidegate_simulators.draws import draw, fraction
from tidegate_simulators.github.draws import moments
from tidegate_simulators.github.threads import Threads


class Comments:
    """One series of ids; the columns are indexed by ordinal, and ordinal 0 is unused."""

    def __init__(self, key: int, count: int, hosts: Sequence[int], threads: Threads, end: int) -> None:
        self.key, self._threads = key, threads
        self.parents = array("I", [0])
        self.created, self.updated = array("q", [0]), array("q", [0])
        self.gone: set[int] = set()
        self.resolved: set[int] = set()
        """Review comments of which the thread was resolved."""
        self.authors: dict[int, int] = {}
        if hosts:
            self._generate(count, hosts, end)

    def _generate(self, count: int, hosts: Sequence[int], end: int) -> None:
        """Each goes to a host that existed at its time, more often to a recent one, and sets its `updated_at`."""
        born, eldest = self._threads.created, 0
        for ordinal, at in enumerate(moments(self.key, count, born[hosts[0]], end), 1):
            while eldest + 1 < len(hosts) and born[hosts[eldest + 1]] <= at:
                eldest += 1
            bits = draw(self.key, ordinal, 3)
            host = hosts[eldest - int(eldest * fraction(bits) ** 4)]
            edited_at = min(end, at + bits % 100_000) if bits % 8 == 0 else at
            self._append(host, at, edited_at)

    def _append(self, parent: int, created: int, updated: int) -> None:
        self.parents.append(parent)
        self.created.append(created)
        self.updated.append(updated)
        self._threads.touch(parent, updated)

    def __len__(self) -> int:
        return len(self.parents) - 1

    def ordinals(self) -> list[int]:
        """Every one that is still there, in order of its id."""
        return [ordinal for ordinal in range(1, len(self.parents)) if ordinal not in self.gone]

    def of(self, number: int) -> list[int]:
        """Those under one issue or pull request."""
        return [o for o, parent in enumerate(self.parents) if parent == number and o not in self.gone]

    def add(self, parent: int, at: int, *, created: int | None = None, author_id: int | None = None) -> int:
        """One more, and its ordinal."""
        self._append(parent, at if created is None else created, at)
        if author_id is not None:
            self.authors[len(self)] = author_id
        return len(self)

    def edit(self, ordinal: int, at: int) -> None:
        """Change the text of a comment."""
        self.updated[ordinal] = at
        self._threads.touch(self.parents[ordinal], at)

    def remove(self, ordinal: int) -> None:
        """Delete one of the comments."""
        self.gone.add(ordinal)
