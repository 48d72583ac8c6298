"""What happened: every call, by its second, its character and its outcome, in memory that does not grow with them."""

from collections import Counter, deque

import msgspec

from tidegate_simulators.cost import Cost, Meter
from tidegate_simulators.game.key_limits import KeyReport
from tidegate_simulators.stalls import StallReport

_SECONDS_REMEMBERED = 3_600
_MOST_CALLED = 20
_US = 1_000_000


class Report(msgspec.Struct, frozen=True):
    """The report. `broken` is the proof: zero, or a limit was exceeded."""

    broken: int
    """Calls of all keys that broke a rule: too many in some second, after the end of a day's allowance, under a ban."""
    calls: int
    by_route: dict[str, int]
    by_outcome: dict[str, int]
    """By status; by the fault, where there was no status."""
    faults: dict[str, int]
    """Injected ones, by kind."""
    refused: int
    """Answers of a limit: 429, or 403 under a ban."""
    most_in_a_second: int
    """The greatest number of calls of one key that certainly came within one second."""
    uncertain: int
    """Windows of all keys that cannot be judged, because the event loop stalled: see `uncertain_windows` of a key."""
    stalls: StallReport
    keys: list[KeyReport]
    bytes_sent: int
    """Bodies that were handed over for sending."""
    subjects_called: int
    """How many different characters; those beyond the bound are not among them."""
    calls_uncounted: int
    """Calls for characters beyond the bound of those that are counted one by one."""
    most_called: list[tuple[int, int]]
    """The characters with the most calls, each with their number."""
    first_second: int
    """The number of the first second in `per_second`, counted from the start."""
    per_second: list[int]
    """Calls of all keys in each second of the clock, for the last hour."""
    connections: int
    """Opened since the start."""
    cost: Cost


class Ledger:
    """Counts from the start, or from the last `clear`."""

    def __init__(self, subjects_counted: int) -> None:
        self._subjects_counted = subjects_counted
        self.connections = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything that was counted."""
        self._answers: dict[tuple[str, int | str], int] = {}
        self.faults = Counter[str]()
        self.bytes_sent = self._uncounted = 0
        self._subjects: dict[int, int] = {}
        self._seconds: deque[int] = deque(maxlen=_SECONDS_REMEMBERED)
        self._second = -1
        self._meter = Meter()

    def book(self, route: str, outcome: int | str, at_us: int) -> None:
        """A call came, and this is what became of it."""
        kind = route, outcome
        self._answers[kind] = self._answers.get(kind, 0) + 1
        second = at_us // _US
        if second != self._second:
            self._begin(second)
        self._seconds[-1] += 1

    def book_subject(self, subject: int) -> None:
        """A call came for this character."""
        subjects = self._subjects
        if subject in subjects:
            subjects[subject] += 1
        elif len(subjects) < self._subjects_counted:
            subjects[subject] = 1
        else:
            self._uncounted += 1

    def calls_of(self, subject: int) -> int:
        """How many calls there were for one character, as far as they are counted one by one."""
        return self._subjects.get(subject, 0)

    def _begin(self, second: int) -> None:
        quiet = second - self._second - 1 if self._seconds else 0
        self._seconds.extend([0] * min(quiet, _SECONDS_REMEMBERED))
        self._seconds.append(0)
        self._second = second

    def report(self, keys: list[KeyReport], stalls: StallReport) -> Report:
        """Return everything counted so far."""
        calls = sum(self._answers.values())
        by_route, by_outcome = Counter[str](), Counter[str]()
        for (route, outcome), times in self._answers.items():
            by_route[route] += times
            by_outcome[str(outcome)] += times
        return Report(
            broken=sum(key.broken for key in keys),
            calls=calls,
            by_route=dict(by_route),
            by_outcome=dict(by_outcome),
            faults=dict(self.faults),
            refused=sum(sum(key.refused.values()) for key in keys),
            most_in_a_second=max((key.most_in_a_second for key in keys), default=0),
            uncertain=sum(key.uncertain for key in keys),
            stalls=stalls,
            keys=keys,
            bytes_sent=self.bytes_sent,
            subjects_called=len(self._subjects),
            calls_uncounted=self._uncounted,
            most_called=Counter(self._subjects).most_common(_MOST_CALLED),
            first_second=max(0, self._second - len(self._seconds) + 1),
            per_second=list(self._seconds),
            connections=self.connections,
            cost=self._meter.read(calls),
        )
