"""Delivers outbox events after their transactions committed. A service of the leader.

Invariants, which hold across crashes:

- A committed event has a row until its handlers succeeded or it became a dead letter; the row is removed last.
- After a start, a wake-up or a due time, ALL due rows are read from the beginning, so a row that became visible late
  is not missed.
- One event of a key is delivered at a time. The next one starts when the one before was handled or is stored as a dead
  letter; a failing key delays only its own events.
- After a crash, the remaining rows are delivered again in their order.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from tidegate.core.arguments import require_positive
from tidegate.core.backoff import Backoff
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import OUTBOX_DEPTH
from tidegate.runtime.delivery import (
    DeadLettered,
    Delivered,
    EventDeliverer,
    Handler,
    Outcome,
    Postponed,
    Retries,
    settle,
)
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, occurs
from tidegate.storage.sql import Database, Transaction, outbox
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


log = get_logger(__name__)

_PAGE = 200
_WRITE_AGAIN_AFTER_S = 10.0


class Relay:
    """Delivers the events of the outbox; see the invariants of the module.

    Parameters:
        concurrency: handlers that run at once.
        max_attempts, backoff: retries of an event, unless its handler has its own.
        handler_timeout: a handler that takes longer has failed.
        most_in_memory: events that are held in memory.
        only_handled: leave events of kinds without a handler to other processes; otherwise they become dead letters.
    """

    def __init__(
        self,
        database: Database,
        handlers: Sequence[Handler],
        *,
        concurrency: int = 32,
        max_attempts: int = 12,
        backoff: Backoff | None = None,
        handler_timeout: timedelta = timedelta(minutes=5),
        most_in_memory: int = 1000,
        only_handled: bool = False,
    ) -> None:
        require_positive("concurrency", concurrency)
        require_positive("most_in_memory", most_in_memory)
        self._database, self._concurrency = database, concurrency
        self._deliverer = EventDeliverer(
            handlers,
            clock=database.clock,
            retries=Retries(backoff or Backoff(), max_attempts),
            timeout=handler_timeout,
        )
        self._counts = {handler.kind: handler.on_waiting for handler in handlers if handler.on_waiting is not None}
        self._kinds = sorted({handler.kind for handler in handlers}) if only_handled else None
        self._most_in_memory = most_in_memory
        self._outage = Outage("relay")
        self._wake = asyncio.Event()
        self._start_anew()

    def notify(self) -> None:
        """Look for new events as soon as possible. Call it from the event loop; repeated calls are one."""
        self._must_look = True
        self._wake.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Deliver until `stopping` is set; then let running handlers finish and leave the rest in the table."""
        # A later term as leader begins without the events of an earlier one, which others may have delivered.
        self._start_anew()
        # Before the first pass, so that no commit is missed in between.
        unsubscribe = self._database.subscribe(outbox.COMMITTED, self.notify)
        watch = asyncio.create_task(self._wake_at(stopping))
        try:
            while not stopping.is_set():
                await self._take_a_turn(stopping)
                await self._wait()
            await self._finish()
        finally:
            unsubscribe()
            await end(watch, *self._running)
            for report in self._counts.values():
                report(0)  # from now on another process reports the count
            OUTBOX_DEPTH.set(0)

    def _start_anew(self) -> None:
        # Events per key are bounded so that memory cannot be full while a handler is free.
        share = max(1, self._most_in_memory // (2 * self._concurrency))
        self._backlog = Backlog(most=self._most_in_memory, most_per_key=share)
        self._running: set[asyncio.Task[None]] = set()
        self._outcomes: list[Outcome] = []
        self._next_due: datetime | None = None
        self._must_look = True
        self._must_count = True
        self._failures = 0
        self._stopping = False
        self._deliverer.stopping.clear()

    async def _take_a_turn(self, stopping: asyncio.Event) -> None:
        """Store outcomes, load due events and start handlers."""
        self._wake.clear()
        try:
            await self._settle()
            await self._count_retrying()
            if self._must_look or self._backlog.wants_more or self._is_due():
                await self._look()
        except Unavailable as error:
            self._failures += 1
            self.notify()  # a new pass sees everything that happened meanwhile
            await self._outage.pause(error, self._failures, stopping=stopping)
            return
        self._failures = 0
        self._outage.over()
        self._begin()

    async def _settle(self) -> None:
        """Store all outcomes since the last call in one transaction. If it fails, the next turn repeats it."""
        if not self._outcomes:
            return
        # A copy, because handlers that end during the transaction add further outcomes.
        outcomes = list(self._outcomes)
        try:
            await self._database.transaction(settle, outcomes)
        except Unavailable:
            raise
        except Exception:
            # A dead-letter effect or a value that the database rejects must not block the other outcomes.
            await self._settle_each(outcomes)
        else:
            # Only after the commit, and with no pass under way, is a forgotten row not loaded again.
            del self._outcomes[: len(outcomes)]
            for outcome in outcomes:
                self._close(outcome)
        OUTBOX_DEPTH.set(len(self._backlog))

    async def _settle_each(self, outcomes: Sequence[Outcome]) -> None:
        """Store each outcome alone, because one of them fails the transaction. It then delays only its own key."""
        for outcome in outcomes:
            try:
                await self._database.transaction(settle, [outcome])
            except Unavailable:
                raise
            except Exception:
                log.exception("outbox.settle_failed", event_id=outcome.row.event_id, kind=outcome.row.kind)
                self._write_later(outcome)
            else:
                self._close(outcome)
            self._outcomes.remove(outcome)

    def _write_later(self, outcome: Outcome) -> None:
        outcomes = self._outcomes  # the list of this run: a later run loads the row again

        def write() -> None:
            outcomes.append(outcome)
            self._wake.set()

        asyncio.get_running_loop().call_later(_WRITE_AGAIN_AFTER_S, write)

    async def _count_retrying(self) -> None:
        """Report how many events wait for another attempt, if that may have changed."""
        if self._must_count and self._counts:
            for kind, count in (await self._database.read(outbox.retrying, list(self._counts))).items():
                self._counts[kind](count)
        self._must_count = False

    def _close(self, outcome: Outcome) -> None:
        self._backlog.forget(outcome.row.id)
        self._must_count = self._must_count or isinstance(outcome, Postponed) or outcome.row.attempts > 0
        match outcome:
            case Delivered():
                pass  # `_deliver` released its key
            case DeadLettered():
                # The next event of the key starts only now, when the dead letter is stored.
                self._backlog.release(outcome.row.key)
            case Postponed():
                # Later events of the key wait for the postponed one, and are loaded again with it.
                self._backlog.drop(outcome.row.key)
                self._next_due = min(self._next_due or outcome.not_before, outcome.not_before)

    async def _look(self) -> None:
        """Make one pass over all due rows, from the beginning, as far as there is room."""
        # Cleared before the pass: a notification during it requests another pass.
        self._must_look, self._next_due = False, None
        self._backlog.begin_pass()
        after, complete = 0, False
        # All pages use the same time: otherwise a key that becomes due between two pages would begin in its middle.
        now = self._database.clock.now()
        while not complete and self._backlog.has_room:
            # Computed before each page: the keys that became full are skipped by the query.
            closed = list(self._backlog.close_full_keys())
            page, self._next_due = await self._database.read(_page, now, after, closed, self._kinds)
            for row in page:
                self._backlog.add(row)
            self._begin()
            complete = len(page) < _PAGE
            after = page[-1].id if page else after
        # Room was exhausted before the end of the table.
        if not complete:
            self._backlog.note_rows_left()
        OUTBOX_DEPTH.set(len(self._backlog))

    def _begin(self) -> None:
        """Start as many handlers as may run."""
        while not self._stopping and len(self._running) < self._concurrency and (row := self._backlog.take()):
            task = asyncio.create_task(self._deliver(row), name=f"deliver {row.event_id}")
            self._running.add(task)
            task.add_done_callback(self._delivered)

    async def _deliver(self, row: StoredEvent) -> None:
        outcome = await self._deliverer.deliver(row)
        self._outcomes.append(outcome)
        if isinstance(outcome, Delivered):
            # The next event of the key does not wait for the removal: after a crash before it, both are repeated.
            self._backlog.release(row.key)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._begin()
            self._wake.set()

    async def _wait(self) -> None:
        """Wait for a wake-up, the end of a handler, the next due time or the stop."""
        # There is no await between this check and the wait below, so no event is missed.
        if self._outcomes or self._must_look:
            return
        if self._next_due is None:
            await self._wake.wait()
        else:
            left = (self._next_due - self._database.clock.now()).total_seconds()
            await occurs(self._wake, within_s=max(0.0, left))

    def _is_due(self) -> bool:
        return self._next_due is not None and self._next_due <= self._database.clock.now()

    async def _finish(self) -> None:
        """Start nothing more and store outcomes; what cannot be stored is delivered again by the next leader."""
        self._stopping = True
        # Handlers that wait for an unavailable server give up; their events are delivered again later.
        self._deliverer.stopping.set()
        with suppress(Unavailable):
            while self._running:
                await asyncio.wait(list(self._running), return_when=asyncio.FIRST_COMPLETED)
                await self._settle()
            await self._settle()

    async def _wake_at(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self._wake.set()


def _page(
    tx: Transaction, now: datetime, after: int, closed: Sequence[str], kinds: Sequence[str] | None
) -> tuple[list[StoredEvent], datetime | None]:
    page = outbox.pending_page(tx, after=after, limit=_PAGE, without_keys=closed, kinds=kinds, now=now)
    return page, outbox.next_due(tx, kinds=kinds, now=now)
