"""What happened on all hosts together: calls, outcomes, faults, and the rules of politeness that were broken."""

from collections import Counter
from enum import StrEnum

import msgspec

from tidegate_simulators.cost import Cost, Meter
from tidegate_simulators.stalls import StallReport, UncertainWindow, UncertainWindows

_MOST_SAMPLES = 200


class Rule(StrEnum):
    """What a crawler owes a host."""

    TOO_SOON = "too_soon"  # sooner after the last call to this host than max(setting, Crawl-delay)
    PAUSE = "pause_ignored"  # although a Retry-After was in force
    DISALLOWED = "disallowed"  # a path that robots.txt forbids
    ROBOTS = "robots_unread"  # before robots.txt was read, or so long after that it had to be read again
    BANNED = "banned"  # although a 403 had named the end of the ban
    AT_ONCE = "identity_at_once"  # while another call of the same identity was under way, on any host
    MISMATCHED = "identity_mixed"  # the cookie of one identity with the User-Agent or language of another


class Violation(msgspec.Struct, frozen=True):
    """One rule, broken once."""

    rule: Rule
    host: int
    at_s: float
    """By the simulator's clock, since its start."""
    identity: str
    target: str
    short_by_ms: float | None = None
    """How much too early it came."""


class HostReport(msgspec.Struct, frozen=True):
    """The calls of one host. Every call counts: pages, robots.txt, targets of redirects, refused calls."""

    host: int
    url: str
    calls: int
    smallest_gap_ms: float | None
    """Between the arrivals of two calls, at most, where the event loop stalled; None: there were not two."""
    least_gap_ms: float
    """The required delay: the setting or Crawl-delay, whichever is longer."""
    violations: dict[str, int]
    by_banned: int
    """Calls under a ban, also of identities that could not know of it."""
    under_way: int
    """Calls without an answer so far, from clients that are still connected."""
    most_at_once: int
    robots_read: int
    pauses_announced: int
    """Answers with a Retry-After, other than bans."""


class IdentityReport(msgspec.Struct, frozen=True):
    """What one identity did, on all hosts."""

    name: str
    calls: int
    refused: int
    bans: int
    most_at_once: int


class Report(msgspec.Struct, frozen=True):
    """The report. `broken` is the proof: zero, or a rule was broken."""

    broken: int
    calls: int
    violations: dict[str, int]
    """By rule, on all hosts. A call that breaks two rules counts for both."""
    samples: list[Violation]
    """The first ones."""
    uncertain: int
    """Calls that broke a rule of time only by when they were read: the event loop had stalled."""
    uncertain_samples: list[UncertainWindow]
    """The first ones; gaps and pauses in milliseconds."""
    stalls: StallReport
    smallest_gap_ms: float | None
    """On whichever host."""
    hosts: list[HostReport]
    identities: list[IdentityReport]
    """The identities that called."""
    by_route: dict[str, int]
    by_outcome: dict[str, int]
    """By status; by the fault, where there was no status."""
    not_modified: int
    refused: dict[str, int]
    """Answers of a limit, by its reason."""
    faults: dict[str, int]
    """Injected ones, by kind."""
    step: int
    """How far the world is."""
    bytes_sent: int
    connections: int
    cost: Cost


class Ledger:
    """Counts from the start, or from the last `clear`."""

    def __init__(self) -> None:
        self.connections = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything that was counted."""
        self._answers: dict[tuple[str, int | str], int] = {}
        self.faults, self.refused = Counter[str](), Counter[str]()
        self.samples: list[Violation] = []
        self.uncertain = UncertainWindows()
        self.bytes_sent = 0
        self._meter = Meter()

    def book(self, route: str, outcome: int | str) -> None:
        """A call came, and this is what became of it."""
        kind = route, outcome
        self._answers[kind] = self._answers.get(kind, 0) + 1

    def show(self, violation: Violation) -> None:
        """Keep it, if it is one of the first."""
        if len(self.samples) < _MOST_SAMPLES:
            self.samples.append(violation)

    def report(
        self, hosts: list[HostReport], identities: list[IdentityReport], step: int, stalls: StallReport
    ) -> Report:
        """Return everything counted so far."""
        by_route, by_outcome, violations = Counter[str](), Counter[str](), Counter[str]()
        for (route, outcome), times in self._answers.items():
            by_route[route] += times
            by_outcome[str(outcome)] += times
        for host in hosts:
            violations.update(host.violations)
        calls = by_route.total()
        gaps = [host.smallest_gap_ms for host in hosts if host.smallest_gap_ms is not None]
        return Report(
            broken=violations.total(),
            calls=calls,
            violations=dict(violations),
            samples=list(self.samples),
            uncertain=self.uncertain.count,
            uncertain_samples=list(self.uncertain.samples),
            stalls=stalls,
            smallest_gap_ms=min(gaps, default=None),
            hosts=hosts,
            identities=identities,
            by_route=dict(by_route),
            by_outcome=dict(by_outcome),
            not_modified=by_outcome["304"],
            refused=dict(self.refused),
            faults=dict(self.faults),
            step=step,
            bytes_sent=self.bytes_sent,
            connections=self.connections,
            cost=self._meter.read(calls),
        )
