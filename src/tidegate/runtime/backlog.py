"""Events that the relay has loaded: ordered within a key, keys in turn, bounded in number."""

from bisect import insort
from collections import deque
from collections.abc import Collection

from tidegate.core.arguments import require_positive
from tidegate.storage.sql.outbox import StoredEvent


class Backlog:
    """Bookkeeping without I/O.

    An event is known from `add` until `forget`; adding it again in between does nothing. At most one event of a key is
    out (taken, and neither released nor dropped): the one with the lowest id.
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
        """Whether another event can be added."""
        return len(self._known) < self._most

    @property
    def wants_more(self) -> bool:
        """Whether events were left in the table for lack of room, and there is enough room now to load more."""
        if self._had_no_room and len(self._known) <= self._most // 2:
            return True
        return any(key not in self._queues for key in self._cut_short)

    def begin_pass(self) -> None:
        """Prepare to read the table from its beginning, which will include the events that were left there."""
        self._had_no_room = False
        self._cut_short.clear()

    def close_full_keys(self) -> Collection[str]:
        """Return the keys of which this pass loads no more events, so that one busy key cannot use all the room.

        A key stays closed until the next pass even when it has room again, because the events left out come first.
        """
        self._cut_short.update(key for key, queue in self._queues.items() if len(queue) >= self._most_per_key)
        return self._cut_short

    def add(self, row: StoredEvent) -> None:
        """Add an event unless it is known or its key is closed. A lack of room is remembered for `wants_more`."""
        # An event of a cut-short key would overtake those of the key that were left in the table.
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
        # A row with a lower id may become visible later than one with a higher id.
        insort(queue, row, key=lambda each: each.id)
        # A key is in `_turns` once; a key that is out returns there when it is released.
        if len(queue) == 1 and row.key not in self._out:
            self._turns.append(row.key)

    def note_rows_left(self) -> None:
        """Record that a pass stopped before the end of the table, for lack of room."""
        self._had_no_room = True

    def take(self) -> StoredEvent | None:
        """Take the next event of the next key in turn; None when every key is out or empty."""
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
        """The event of the key that was out is finished; the next one may be taken."""
        self._out.discard(key)
        if key in self._queues:
            self._turns.append(key)

    def drop(self, key: str) -> None:
        """The event of the key has to wait: forget the later events of the key, which are loaded again with it."""
        self._out.discard(key)
        for row in self._queues.pop(key, ()):
            self._known.discard(row.id)
        # Otherwise `wants_more` would ask for events of the key, which are not due.
        self._cut_short.discard(key)

    def forget(self, row_id: int) -> None:
        """The row was removed from the table or is no longer due."""
        self._known.discard(row_id)
