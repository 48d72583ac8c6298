"""The events a relay has in memory: in order within a key, in turn between keys, never more than agreed."""

from bisect import insort
from collections import deque
from collections.abc import Collection

from tidegate.core.arguments import require_positive
from tidegate.storage.sql.outbox import StoredEvent


class Backlog:
    """Pure bookkeeping, without any waiting.

    An event is known from `add` until `forget`, and is added only once meanwhile. Of one key, at most one is out
    (taken, and neither `release`d nor `drop`ped), always the one with the lowest id.
    """

    def __init__(self, *, most: int, most_per_key: int) -> None:
        require_positive("most", most)
        require_positive("most_per_key", most_per_key)
        self._most, self._most_per_key = most, most_per_key
        self._known: set[int] = set()
        self._queues: dict[str, list[StoredEvent]] = {}
        self._turns: deque[str] = deque()
        self._out: set[str] = set()
        self._cut_short: set[str] = set()
        self._had_no_room = False

    def __len__(self) -> int:
        return len(self._known)

    @property
    def has_room(self) -> bool:
        """Whether another event may be added at all."""
        return len(self._known) < self._most

    @property
    def wants_more(self) -> bool:
        """Whether events were left in the table for lack of room, and there is some again worth a look."""
        if self._had_no_room and len(self._known) <= self._most // 2:
            return True
        return any(key not in self._queues for key in self._cut_short)

    def begin_pass(self) -> None:
        """The table is about to be read from its beginning: what was left there will be met again."""
        self._had_no_room = False
        self._cut_short.clear()

    def close_full_keys(self) -> Collection[str]:
        """Keys of which this pass shall load no more: one busy key must not use up the room of all.

        A key stays closed until the next pass, also when it has room again: what was left out comes first.
        """
        self._cut_short.update(key for key, queue in self._queues.items() if len(queue) >= self._most_per_key)
        return self._cut_short

    def add(self, row: StoredEvent) -> None:
        """Take in an event, unless it is known, its key is closed or there is no room, which is remembered."""
        if row.id in self._known or row.key in self._cut_short:
            return
        if not self.has_room:
            self.note_rows_left()
            return
        queue = self._queues.setdefault(row.key, [])
        if len(queue) >= self._most_per_key:
            self._cut_short.add(row.key)
            return
        self._known.add(row.id)
        insort(queue, row, key=lambda each: each.id)
        if len(queue) == 1 and row.key not in self._out:
            self._turns.append(row.key)

    def note_rows_left(self) -> None:
        """A pass ended before the table did, for lack of room."""
        self._had_no_room = True

    def take(self) -> StoredEvent | None:
        """The next event of the key whose turn it is; None when every key is out or empty."""
        if not self._turns:
            return None
        key = self._turns.popleft()
        self._out.add(key)
        queue = self._queues[key]
        row = queue.pop(0)
        if not queue:
            del self._queues[key]
        return row

    def release(self, key: str) -> None:
        """The key's event is done with; its next one may be taken."""
        self._out.discard(key)
        if key in self._queues:
            self._turns.append(key)

    def drop(self, key: str) -> None:
        """The key's event has to wait: forget those behind it, which will be loaded again in due time."""
        self._out.discard(key)
        for row in self._queues.pop(key, ()):
            self._known.discard(row.id)
        self._cut_short.discard(key)

    def forget(self, row_id: int) -> None:
        """The row is gone from the table, or no longer due."""
        self._known.discard(row_id)
