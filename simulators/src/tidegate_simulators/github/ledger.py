"""Records every call, every broken limit, every fault and its cost."""

from collections import Counter, defaultdict
from enum import StrEnum

import msgspec

from tidegate_simulators.github.calls import Call
from tidegate_simulators.github.config import FaultKind
from tidegate_simulators.stalls import StallReport, UncertainWindow, UncertainWindows

_MOST_SAMPLES = 200
_MINUTE_S = 60
_MOST_REMEMBERED_FAULTS = 10_000


class Broken(StrEnum):
    """The rules that a collector can break."""

    PRIMARY = "primary_exhausted"  # called although the window had nothing left
    AT_ONCE = "too_many_at_once"
    POINTS = "points_per_minute"
    CPU = "cpu_per_minute"
    PAUSE = "pause_ignored"  # called although a secondary limit had asked for a pause
    NOT_FOUND = "too_many_not_found"
    CREDENTIALS = "too_many_bad_credentials"


class Violation(msgspec.Struct, frozen=True):
    """One violation of a rule."""

    rule: Broken
    at: float
    owner: str
    route: str
    bucket: str


class WindowUse(msgspec.Struct, frozen=True):
    """How much of one window was used."""

    owner: str
    bucket: str
    limit: int
    used: int
    opened: float
    ends: float
    is_open: bool


class Needed(msgspec.Struct, frozen=True):
    """What a perfect collector spends, as calls; see `perfect_calls`."""

    core: int
    graphql: int
    by_kind: dict[str, int]
    by_login: dict[str, int]

    @property
    def total(self) -> int:
        """Calls of all buckets."""
        return self.core + self.graphql


class Report(msgspec.Struct, frozen=True):
    """The report of a simulator."""

    calls: int
    spent: dict[str, int]
    """What was taken from allowances, by bucket: 304s and `/rate_limit` took nothing, GraphQL takes points."""
    not_modified: int
    refused: int
    """Answers of a primary or secondary limit."""
    by_route: dict[str, int]
    by_token: dict[str, int]
    by_bucket: dict[str, int]
    by_status: dict[str, int]
    violations: dict[str, int]
    violation_samples: list[Violation]
    uncertain: int
    """Windows over a limit, and calls in a pause, by the time of reading only: the event loop had stalled."""
    uncertain_samples: list[UncertainWindow]
    """The first ones; of pauses, seconds after the grace period."""
    stalls: StallReport
    faults: dict[str, int]
    """Injected faults, by kind."""
    retries_after_faults: int
    """Calls that repeated a request after an injected fault."""
    mutations: int
    """Changes that the world made automatically while it was read."""
    polled_early: int
    """Timelines asked for again before `x-poll-interval` was over."""
    peak_at_once: dict[str, int]
    windows: list[WindowUse]
    needed: Needed | None = None

    @property
    def broken(self) -> int:
        """How many rules were broken in all."""
        return sum(self.violations.values())


class Ledger:
    """Counts from the start, or from the last `clear`."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything that was counted."""
        self.by_route, self.by_token, self.by_bucket = Counter[str](), Counter[str](), Counter[str]()
        self.by_status, self.spent, self.faults = Counter[str](), Counter[str](), Counter[str]()
        self.violations = Counter[str]()
        self.samples: list[Violation] = []
        self.uncertain = UncertainWindows()
        self.peaks: defaultdict[str, int] = defaultdict(int)
        self.refused = self.retries = self.mutations = self.polled_early = 0
        self._corrupted: dict[str, None] = {}

    def arrived(self, call: Call, at_once: int) -> None:
        """A call came; `at_once` are under way for its owner, itself included."""
        self.by_route[call.match.route] += 1
        self.by_token[call.caller.token_name] += 1
        self.by_bucket[call.match.bucket] += 1
        owner = call.caller.owner.key
        self.peaks[owner] = max(self.peaks[owner], at_once)
        if self._corrupted and call.url in self._corrupted:
            del self._corrupted[call.url]
            self.retries += 1

    def answered(self, status: int | str) -> None:
        """An answer was decided on; a word, where there was none."""
        self.by_status[str(status)] += 1

    def violated(self, rule: Broken, call: Call) -> None:
        """A rule was broken."""
        self.violations[rule.value] += 1
        if len(self.samples) < _MOST_SAMPLES:
            owner = call.caller.owner.key
            self.samples.append(Violation(rule, call.at, owner, call.match.route, call.match.bucket))

    def unsure(self, rule: Broken, call: Call, *, read: float, certain: float, limit: float, stall_s: float) -> None:
        """A rule may have been broken: it cannot be known, since requests were read late."""
        owner = call.caller.owner.key
        stall_ms = stall_s * 1_000
        self.uncertain.add(
            UncertainWindow(rule, owner, call.at, read=read, certain=certain, limit=limit, stall_ms=stall_ms), _MINUTE_S
        )

    def injected(self, kind: FaultKind, call: Call) -> None:
        """Record a fault that replaced or corrupted an answer."""
        self.faults[kind.value] += 1
        if len(self._corrupted) < _MOST_REMEMBERED_FAULTS:
            self._corrupted[call.url] = None

    def report(self, windows: list[WindowUse], stalls: StallReport, needed: Needed | None = None) -> Report:
        """Return everything counted so far."""
        return Report(
            calls=self.by_route.total(),
            spent=dict(self.spent),
            not_modified=self.by_status["304"],
            refused=self.refused,
            by_route=dict(self.by_route),
            by_token=dict(self.by_token),
            by_bucket=dict(self.by_bucket),
            by_status=dict(self.by_status),
            violations=dict(self.violations),
            violation_samples=list(self.samples),
            uncertain=self.uncertain.count,
            uncertain_samples=list(self.uncertain.samples),
            stalls=stalls,
            faults=dict(self.faults),
            retries_after_faults=self.retries,
            mutations=self.mutations,
            polled_early=self.polled_early,
            peak_at_once=dict(self.peaks),
            windows=windows,
            needed=needed,
        )
