"""Runs one schedule of requesters and workers, and checks the guarantees after every step.

The guarantees are checked by observed results, not by the rules under test:

- The version of a row never goes back, and an older result changes nothing.
- A call that was sent earlier does not undo one that was sent later (while the server's clock is not set back).
- A failure is not noted over a success as new or newer.
- Versions of a subject grow with every grant: while the server has its data, or its clock is ahead of all of them; and
  always beyond what the caller knew.
- The lock of a subject is not granted while it is held, except to HIGH over LOW; and only its holder releases it.
- Every published event is processed: it is skipped only if a newer one of its subject was published.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from chaos.schedules.environment import BEGIN_MS, SETTINGS, SUBJECTS, Brought, Environment, Line, moment
from chaos.schedules.plan import ActionKind, Step
from tidegate.core.clock import milliseconds
from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import AlreadyProcessing, Upgraded
from tidegate.systems.snapshots.versions import version_of_result

LASTS_MS = {Priority.HIGH: milliseconds(SETTINGS.high_lock), Priority.LOW: milliseconds(SETTINGS.low_lock)}
WORKERS = 3
_MOST_IN_HAND = 3
_SPANS_MS = (
    0,
    1,
    1,
    40,
    40,
    400,
    400,
    5_000,
    29_999,
    30_000,
    31_000,
    60_001,
    600_000,
    2_699_999,
    2_700_001,
    90_000_000,
)
_RECEIVED, _CHECKED, _CALLED, _WRITTEN, _ACKNOWLEDGED = range(5)


class PromiseBroken(AssertionError):
    """What should never happen did."""


class Event(msgspec.Struct, frozen=True):
    """A message."""

    subject: int
    version: int


class Work(msgspec.Struct):
    """An event in the hand of a worker."""

    event: Event
    stage: int = _RECEIVED
    brought: Brought | None = None
    is_theirs: bool = True
    """False: it was given to another worker meanwhile."""


class Worker(msgspec.Struct):
    """A process."""

    in_hand: list[Work] = []
    is_paused: bool = False

    @property
    def has_room(self) -> bool:
        """Whether it would take another event."""
        return not self.is_paused and len(self.in_hand) < _MOST_IN_HAND


class Lock(msgspec.Struct):
    """A lock that was not released yet."""

    version: int
    priority: Priority
    until_ms: int


class World:
    """Plays schedules, one after another, on one ground."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.happened: Counter[str] = Counter()
        """How often what happened, in all schedules together."""
        self.seen: list[object] = []
        """What the ground answered in this schedule, in order."""
        self._actions: dict[int, Callable[[int], None]] = {
            ActionKind.ASK_HIGH: self._ask_high,
            ActionKind.ASK_LOW: self._ask_low,
            ActionKind.PUBLISH: self._publish,
            ActionKind.TAKE: self._take,
            ActionKind.GO_ON: self._go_on,
            ActionKind.KILL: self._kill,
            ActionKind.PAUSE: self._pause,
            ActionKind.REVIVE: self._revive,
            ActionKind.DUPLICATE: self._duplicate,
            ActionKind.TIME: self._pass_time,
            ActionKind.CLOCK_BACK: self._set_back,
            ActionKind.FLUSH: self._flush,
            ActionKind.SAVE: self._save,
            ActionKind.RESTORE: self._restore,
            ActionKind.CONFIRM: self._confirm,
        }
        self._begin()

    def play(self, steps: list[Step]) -> None:
        """From beginning to end; raises `PromiseBroken`."""
        self._begin()
        for action, detail in steps:
            self._actions[action](detail)
        self._finish()

    def _finish(self) -> None:
        """Resume paused actors, and process all pending work, the newest first."""
        for worker in self._workers:
            self.happened["zombies revived"] += worker.is_paused
            worker.is_paused = False
        while self._queue or self._busy():
            self._take(1)
            self._go_on(0b1111_11_00 + self._calls % WORKERS)
        for published, ended in zip(self._highest_published, self._highest_ended, strict=True):
            if ended < published:
                raise PromiseBroken(f"version {published} was published, and nothing newer than {ended} was done")

    def _begin(self) -> None:
        self.environment.begin()
        self.seen = []
        self._now_ms, self._calls, self._tokens = BEGIN_MS, 0, 0
        self._queue: list[Event] = []
        self._granted: list[Event] = []
        self._unconfirmed: list[Event] = []
        self._workers = [Worker() for _ in range(WORKERS)]
        self._locks: dict[int, Lock] = {}
        self._highest = [0] * len(SUBJECTS)
        self._highest_written = [0] * len(SUBJECTS)
        self._highest_published = [0] * len(SUBJECTS)
        self._highest_ended = [0] * len(SUBJECTS)
        self._known: list[list[int]] = [[0] for _ in SUBJECTS]
        self._lost_since_grant = [False] * len(SUBJECTS)
        self._was_set_back = self._is_restored = False
        self._granted_at_ms = 0

    # Requesters

    def _ask_high(self, detail: int) -> None:
        self._ask(detail, Priority.HIGH)

    def _ask_low(self, detail: int) -> None:
        self._ask(detail, Priority.LOW)

    def _ask(self, detail: int, priority: Priority) -> None:
        subject, detail = detail & 1, detail >> 1
        known = self._known[subject]
        # A reader's copy may be old. It never is newer than the row.
        known_version = known[-1] if detail & 3 else known[(detail >> 2) % len(known)]
        self._tokens += 1
        token = f"t{self._tokens}"
        held = self._held(subject, known_version)
        outcome = self.environment.request(subject, priority, known_version, token)
        self.seen.append(outcome)
        if detail & 0x7000 == 0:  # the answer was lost: the requester asks again
            self.happened["answers lost"] += 1
            if self.environment.request(subject, priority, known_version, token) != outcome:
                raise PromiseBroken("who repeats a question gets another answer")
        if isinstance(outcome, AlreadyProcessing):
            return
        self._check_grant(subject, priority, outcome.version, known_version, held)
        self.happened["upgrades" if isinstance(outcome, Upgraded) else "grants"] += 1
        if outcome.version > self._highest[subject]:
            self._highest[subject], self._lost_since_grant[subject] = outcome.version, False
        self._locks[subject] = Lock(outcome.version, priority, self._now_ms + LASTS_MS[priority])
        self._granted.append(Event(subject, outcome.version))

    def _check_grant(
        self, subject: int, priority: Priority, version: int, known_version: int, held: Lock | None
    ) -> None:
        if version <= known_version:
            raise PromiseBroken(f"version {version} was given where {known_version} was known")
        is_sure = not self._lost_since_grant[subject] or self._now_ms * 1000 > self._highest[subject]
        if is_sure and version <= self._highest[subject]:
            raise PromiseBroken(f"version {version} was given after {self._highest[subject]}")
        if held is not None and not (held.priority is Priority.LOW and priority is Priority.HIGH):
            raise PromiseBroken(f"the lock of version {held.version} was held, and given away as {version}")

    def _held(self, subject: int, known_version: int) -> Lock | None:
        """The lock as a request must find it. A clock that was set back does not make it longer than it was."""
        lock = self._locks.get(subject)
        if lock is None or lock.version < known_version:
            return None
        lock.until_ms = min(lock.until_ms, self._now_ms + LASTS_MS[lock.priority])
        return lock if lock.until_ms > self._now_ms else None

    def _publish(self, detail: int) -> None:
        if not self._granted:
            return
        event = self._granted.pop(detail % len(self._granted))
        fate = detail >> 4 & 15
        if fate == 0:
            self.happened["askers killed before they published"] += 1
            return
        if fate <= 2:  # publishing failed, as far as the requester knows
            self.happened["publishes failed"] += 1
            self._release(event)
            if fate == 1:
                return
            self.happened["failed publishes that arrived"] += 1
        self._queue.append(event)
        self._highest_published[event.subject] = max(self._highest_published[event.subject], event.version)
        if fate > 2:
            self._unconfirmed.append(event)
        if fate > 7:  # at once; the others later, or, where the asker dies first, never
            self._confirm(len(self._unconfirmed) - 1)

    def _confirm(self, detail: int) -> None:
        if self._unconfirmed:
            event = self._unconfirmed.pop(detail % len(self._unconfirmed))
            confirmed = self.environment.confirm(event.subject, event.version)
            self.seen.append(confirmed)
            self.happened["confirmations" if confirmed else "confirmations that came late"] += 1

    # Workers

    def _take(self, detail: int) -> None:
        if not self._queue or not (free := [each for each in self._workers if each.has_room]):
            return
        worker = free[detail % len(free)]
        detail >>= 2
        # Mostly in order; but a message that comes again, or another partition's, may overtake.
        place = 0 if detail & 1 else (detail >> 1) % len(self._queue)
        self.happened["messages out of order"] += place > 0
        worker.in_hand.append(Work(self._queue.pop(place)))

    def _go_on(self, detail: int) -> None:
        if not (busy := self._busy()):
            return
        worker = busy[detail % len(busy)]
        detail >>= 2
        work = worker.in_hand[detail % len(worker.in_hand)]
        detail >>= 2
        match work.stage:
            case 0:
                # Without the server nothing is obsolete: the row has the last word.
                work.stage = _WRITTEN if detail & 7 and self._is_obsolete(work.event) else _CHECKED
            case 1:
                self._call(work, has_failed=detail & 15 == 0)
            case 2:
                self._write([each for each in worker.in_hand if each.stage == _CALLED])
            case 3:
                work.stage, work.is_theirs = _ACKNOWLEDGED, False
            case _:
                worker.in_hand.remove(work)
                self._release(work.event)

    def _is_obsolete(self, event: Event) -> bool:
        is_obsolete = self.environment.is_obsolete(event.subject, event.version)
        self.seen.append(is_obsolete)
        self.happened["obsolete events skipped"] += is_obsolete
        if is_obsolete and event.version >= self._highest_published[event.subject]:
            raise PromiseBroken(f"version {event.version} was skipped, and nothing newer was published")
        return is_obsolete

    def _busy(self) -> list[Worker]:
        return [each for each in self._workers if each.in_hand and not each.is_paused]

    def _call(self, work: Work, *, has_failed: bool) -> None:
        self._calls += 1
        self._granted_at_ms = max(self._granted_at_ms, self._now_ms)  # as the limiter does, while it has its data
        version = version_of_result(work.event.version, self._granted_at_ms)
        subject = SUBJECTS[work.event.subject]
        state = (self._calls + 1) // 2  # it changes now and then
        work.brought = Brought(subject, version, moment(self._granted_at_ms), None if has_failed else state)
        work.stage = _CALLED

    def _write(self, works: list[Work]) -> None:
        results = [each.brought for each in works if each.brought is not None]
        before = [msgspec.structs.replace(self.environment.line(n)) for n in range(len(SUBJECTS))]
        taken = self.environment.write(results)
        self.seen.append(taken)
        for work, result, is_taken in zip(works, results, taken, strict=True):
            self._judge(before[work.event.subject], work, result, is_taken)
            self._highest_ended[work.event.subject] = max(self._highest_ended[work.event.subject], result.version)
            work.stage = _WRITTEN
        for n in range(len(SUBJECTS)):
            line = self.environment.line(n)
            self.seen.append((line.version, line.state, line.has_failed))
            self._check_row(n, before[n], line, [each for each in results if each.subject == SUBJECTS[n]])

    def _judge(self, before: Line, work: Work, result: Brought, is_taken: bool) -> None:
        self.happened["writes taken" if is_taken else "writes refused"] += 1
        if not work.is_theirs:
            self.happened["zombies' writes taken" if is_taken else "zombies' writes refused"] += 1
        if is_taken and result.version < before.version:
            raise PromiseBroken(f"an old worker's write won: version {result.version} over {before.version}")
        if is_taken and result.state is None and result.version <= self._highest_written[work.event.subject]:
            raise PromiseBroken(f"the failure of version {result.version} was noted over a success as new")

    def _check_row(self, subject: int, before: Line, after: Line, results: list[Brought]) -> None:
        found = [each for each in results if each.state is not None]
        highest = max([before.version, *(each.version for each in found)])
        if after.version != highest:
            raise PromiseBroken(f"the row went from version {before.version} to {after.version}, not to {highest}")
        if after.state < before.state and not self._was_set_back:
            raise PromiseBroken(f"state {after.state} undid state {before.state}, version {after.version}")
        self._highest_written[subject] = max(self._highest_written[subject], after.version)
        if after.version != self._known[subject][-1]:
            self._known[subject].append(after.version)

    def _release(self, event: Event) -> None:
        lock = self._locks.get(event.subject)
        released = self.environment.release(event.subject, event.version)
        self.seen.append(released)
        self.happened["locks released" if released else "releases refused"] += 1
        if released and lock is not None and lock.version != event.version and not self._is_restored:
            raise PromiseBroken(f"version {event.version} dropped the lock of version {lock.version}")
        if lock is not None and lock.version == event.version:
            del self._locks[event.subject]

    def _kill(self, detail: int) -> None:
        if not (busy := self._busy()):
            return
        worker = busy[detail % len(busy)]
        self.happened["workers killed at work"] += 1
        self._queue += [each.event for each in worker.in_hand if each.is_theirs]
        self._workers[self._workers.index(worker)] = Worker()

    def _pause(self, detail: int) -> None:
        """Long enough that its work is reassigned."""
        if not (busy := self._busy()):
            return
        worker = busy[detail % len(busy)]
        self.happened["workers paused at work"] += 1
        worker.is_paused = True
        self._queue += [each.event for each in worker.in_hand if each.is_theirs]
        for each in worker.in_hand:
            each.is_theirs = False
        self._move(_SPANS_MS[(detail >> 2) % len(_SPANS_MS)])

    def _revive(self, detail: int) -> None:
        if paused := [each for each in self._workers if each.is_paused]:
            self.happened["zombies revived"] += 1
            paused[detail % len(paused)].is_paused = False

    def _duplicate(self, detail: int) -> None:
        if self._queue:
            self.happened["messages duplicated"] += 1
            self._queue.append(self._queue[detail % len(self._queue)])

    # Environment

    def _pass_time(self, detail: int) -> None:
        self._move(_SPANS_MS[detail % len(_SPANS_MS)])

    def _set_back(self, detail: int) -> None:
        self.happened["clock set back"] += 1
        self._was_set_back = True  # until it has caught up, calls are ordered by their events
        self._move(-_SPANS_MS[detail % len(_SPANS_MS)])

    def _move(self, by_ms: int) -> None:
        self._now_ms += by_ms
        self.environment.set_time(self._now_ms)
        # A lock that has lapsed once guards nothing any more, though the clock be set back before its end.
        self._locks = {subject: lock for subject, lock in self._locks.items() if lock.until_ms > self._now_ms}

    def _flush(self, _detail: int) -> None:
        self.happened["server lost its data"] += 1
        self._lose(self.environment.flush)

    def _save(self, _detail: int) -> None:
        self.environment.save()

    def _restore(self, _detail: int) -> None:
        self.happened["server came back with old data"] += 1
        self._is_restored = True
        self._lose(self.environment.restore)

    def _lose(self, how: Callable[[], None]) -> None:
        how()
        self._granted_at_ms = 0
        self._locks.clear()
        self._lost_since_grant = [True] * len(SUBJECTS)
