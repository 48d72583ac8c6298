"""The relay's memory against a plain model: in order within a key, one at a time, never too much, nothing twice."""

from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.examples import examples
from tidegate.runtime.relay import Backlog
from tidegate.storage.sql.outbox import StoredEvent

MOST, MOST_PER_KEY, PAGE = 6, 2, 3
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def row(number: int, key: str) -> StoredEvent:
    return StoredEvent(number, str(number), "kind", key, "null", 0, LONG_AGO, None)


class Relaying(RuleBasedStateMachine):
    """A table with a relay's memory in front of it."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(most=MOST, most_per_key=MOST_PER_KEY)
        self.table: dict[int, StoredEvent] = {}
        self.out: dict[str, StoredEvent] = {}
        self.handled: list[StoredEvent] = []
        self.unsettled: list[StoredEvent] = []
        self.highest = 0

    @rule(keys=st.lists(st.sampled_from("aaabc"), min_size=1, max_size=6), gap=st.integers(1, 3))
    def commit(self, keys: list[str], gap: int) -> None:
        for key in keys:
            self.highest += gap
            self.table[self.highest] = row(self.highest, key)

    @rule(takes=st.lists(st.integers(0, 2), max_size=4))
    def look(self, takes: list[int]) -> None:
        """A pass as the relay makes it: pages from the beginning, closed keys left out, events begun in between."""
        self.backlog.begin_pass()
        after, complete = 0, False
        while not complete and self.backlog.has_room:
            closed = self.backlog.close_full_keys()
            rest = [n for n in sorted(self.table) if n > after and self.table[n].key not in closed]
            page, complete = rest[:PAGE], len(rest) < PAGE
            for number in page:
                self.backlog.add(self.table[number])
            after = page[-1] if page else after
            for _ in range(takes.pop() if takes else 0):
                self.take()

    @rule()
    def take(self) -> None:
        taken = self.backlog.take()
        if taken is None:
            return
        assert taken.key not in self.out, "two of one key are out"
        assert taken not in self.handled, "it was handled before"
        assert not [
            n for n, each in self.table.items() if each.key == taken.key and n < taken.id and each not in self.handled
        ], "an earlier one of its key was overtaken"
        self.out[taken.key] = taken

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def handle(self, data: st.DataObject) -> None:
        self._handle(data.draw(st.sampled_from(sorted(self.out))))

    @rule()
    def handle_all_in_memory(self) -> None:
        self.take()
        while self.out:
            self._handle(min(self.out))
            self.take()

    def _handle(self, key: str) -> None:
        done = self.out.pop(key)
        self.handled.append(done)
        self.unsettled.append(done)
        self.backlog.release(key)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        failed = self.out.pop(data.draw(st.sampled_from(sorted(self.out))))
        self.backlog.forget(failed.id)
        self.backlog.drop(failed.key)

    @rule()
    def settle(self) -> None:
        for done in self.unsettled:
            del self.table[done.id]
            self.backlog.forget(done.id)
        self.unsettled.clear()

    @invariant()
    def memory_is_bounded(self) -> None:
        assert len(self.backlog) <= MOST
        assert self.backlog.has_room == (len(self.backlog) < MOST)

    def teardown(self) -> None:
        """Whatever happened, going on handles everything."""
        for _ in range(3 * len(self.table) + 3):
            self.look([])
            self.take()
            for key in list(self.out):
                self._handle(key)
            self.settle()
        assert not self.table


TestRelaying = Relaying.TestCase
TestRelaying.settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
