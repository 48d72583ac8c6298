"""Policies side by side: the same subjects, changing as often, with the same number of calls.

**Staleness** is the share of time in which the copy differs from the upstream's: the probability that a read at a
random time returns an outdated copy. `by_subject` gives every subject the same weight; `by_reader` weighs a subject
by how often it is read. `age_hours` is for how long, on average, what the copy lacks has been there to be seen.

Calls are paced evenly over the day, and take no time. What readers cause themselves is left out: it would help both.
"""

import heapq
import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from tidegate.core.arguments import require_positive
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch.policies import (
    FixedTiers,
    LearnedRates,
    PrefetchPolicy,
    PriceFinder,
    SubjectFacts,
    learn,
)
from tidegate.systems.snapshots.settings import PrefetchSettings

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_DAY_S = 86_400.0


class Member(msgspec.Struct, frozen=True):
    """One subject of a population."""

    changes: float
    """A day, on average."""
    reads: float
    """A day, on average."""


class Habit(StrEnum):
    """How changes follow each other."""

    POISSON = "poisson"  # whenever they like: the next is no more likely because the last was long ago
    REGULAR = "regular"  # at regular intervals


class Population(msgspec.Struct, frozen=True, kw_only=True):
    """How the rates of a population are spread: logarithms are normal, so a few are very much above the rest."""

    subjects: int = 1500
    changes: float = 0.5
    """A day, in the middle of the population."""
    change_spread: float = 2.0
    """Of the logarithm: at 2, one in a hundred changes a hundred times as often as the middle."""
    reads: float = 0.05
    read_spread: float = 2.0
    correlation: float = 0.5
    """How far those that are read often are those that change often."""
    habit: Habit = Habit.POISSON

    def draw(self, chance: random.Random) -> list[Member]:
        """Its members."""
        return [self._member(chance) for _ in range(self.subjects)]

    def _member(self, chance: random.Random) -> Member:
        one, other = chance.gauss(0, 1), chance.gauss(0, 1)
        mixed = self.correlation * one + math.sqrt(1 - self.correlation**2) * other
        return Member(
            self.changes * math.exp(self.change_spread * one), self.reads * math.exp(self.read_spread * mixed)
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy achieved."""

    by_subject: float
    by_reader: float
    age_hours: float
    calls_per_day: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What policies achieve for one population, each with as many calls as the first."""

    tiers: Outcome
    learned: Outcome
    uniform: Outcome
    """All subjects are checked equally often: the simplest policy."""


def compare(population: Population, *, seed: int, days: int = 7, warm_up: int = 7, share: float = 1.0) -> Comparison:
    """Play each policy. `share`: of the calls that the tiers would like to make; less than 1 is a scarce budget."""
    require_positive("days", days)
    require_positive("share", share)
    settings = PrefetchSettings()
    members = population.draw(_chance(seed))
    nominal = sum(_tier_calls(each, settings) for each in members)
    run = _Run(members, population.habit, seed, days=days, warm_up=warm_up)
    tiers = run.play(FixedTiers(settings), calls_per_day=share * nominal)
    return Comparison(
        tiers=tiers,
        learned=run.play(LearnedRates(settings), calls_per_day=tiers.calls_per_day),
        uniform=run.play(
            _Uniform(timedelta(days=len(members) / tiers.calls_per_day)), calls_per_day=tiers.calls_per_day
        ),
    )


class _Uniform:
    def __init__(self, every: timedelta) -> None:
        self._every = every

    def due_at(self, facts: SubjectFacts, now: datetime) -> datetime:
        return (facts.last_checked_at or now) + self._every


def _chance(seed: int) -> random.Random:
    return random.Random(seed)


def _tier_calls(member: Member, settings: PrefetchSettings) -> float:
    """Calls a day that the tiers spend on a member, on average over when it happens to be read."""
    hot = 1 - math.exp(-member.reads * settings.hot_within / timedelta(days=1))
    warm = 1 - math.exp(-member.reads * settings.warm_within / timedelta(days=1))
    day = timedelta(days=1)
    return (
        hot * (day / settings.hot_every)
        + (warm - hot) * (day / settings.warm_every)
        + (1 - warm) * (day / settings.cold_every)
    )


class _State:
    """One subject as the simulation has it; times are seconds since the beginning."""

    __slots__ = ("change_rate", "changes", "checked", "first_change", "last_read")

    def __init__(self, first_change: float) -> None:
        self.checked = 0.0
        self.first_change = first_change
        self.last_read: float | None = None
        self.change_rate: float | None = None
        self.changes = 0


class _Pace:
    """One call after the other, no sooner than the day's calls allow."""

    def __init__(self, calls_per_day: float) -> None:
        self._per_day, self._free_at, self._finder = calls_per_day, 0.0, PriceFinder(_BEGIN)

    def next_call(self, due: float) -> float:
        at = max(due, self._free_at)
        self._free_at = at + _DAY_S / self._per_day
        return at

    def adjust(self, policy: LearnedRates, waited: timedelta, next_interval: timedelta, now: datetime) -> None:
        self._finder.observe(waited, next_interval)
        policy.price = self._finder.adjust(policy.price, self._per_day / _DAY_S, now) or policy.price


class _Run:
    def __init__(self, members: Sequence[Member], habit: Habit, seed: int, *, days: int, warm_up: int) -> None:
        self._members, self._habit, self._seed = members, habit, seed
        self._counts_from, self._ends = warm_up * _DAY_S, (warm_up + days) * _DAY_S
        self._subjects = [SnapshotSubject("simulated", str(n)) for n in range(len(members))]

    def play(self, policy: PrefetchPolicy, *, calls_per_day: float) -> Outcome:
        chance, pace = _chance(self._seed + 1), _Pace(calls_per_day)
        states = [_State(self._next_change(member, 0.0, chance)) for member in self._members]
        score = _Score(self._counts_from, self._ends)
        waiting = [(chance.random() * _DAY_S, n) for n in range(len(states))]
        heapq.heapify(waiting)
        while (at := pace.next_call(waiting[0][0])) < self._ends:
            state, member = states[waiting[0][1]], self._members[waiting[0][1]]
            waited = self._check(state, member, at, chance, score)
            now = _BEGIN + timedelta(seconds=at)
            next_at = policy.due_at(_facts(self._subjects[waiting[0][1]], state, now), now)
            heapq.heapreplace(waiting, ((next_at - _BEGIN).total_seconds(), waiting[0][1]))
            if isinstance(policy, LearnedRates):
                pace.adjust(policy, timedelta(seconds=waited), next_at - now, now)
        for state, member in zip(states, self._members, strict=True):
            score.count(state.first_change, self._ends, member)
        return score.outcome(self._members)

    def _check(self, state: _State, member: Member, at: float, chance: random.Random, score: "_Score") -> float:
        waited, changed = at - state.checked, state.first_change < at
        score.called(at)
        score.count(state.first_change, at, member)
        state.change_rate = learn(state.change_rate, state.changes, waited / _DAY_S, changed=changed)
        state.changes += changed
        since_read = chance.expovariate(member.reads / _DAY_S)
        if since_read < waited:
            state.last_read = at - since_read
        state.checked = at
        if changed:
            state.first_change = self._next_change(member, at, chance)
        return waited

    def _next_change(self, member: Member, after: float, chance: random.Random) -> float:
        period = _DAY_S / member.changes
        if self._habit is Habit.POISSON:
            return after + chance.expovariate(1 / period)
        place = member.reads % 1  # any number of its own will do
        return (math.floor(after / period - place) + 1 + place) * period


def _facts(subject: SnapshotSubject, state: _State, now: datetime) -> SubjectFacts:
    return SubjectFacts(
        subject=subject,
        version=round(state.checked),
        last_checked_at=now,
        last_asked_at=None if state.last_read is None else _BEGIN + timedelta(seconds=state.last_read),
        change_rate=state.change_rate,
        changes=state.changes,
    )


class _Score:
    """Sums the stale time within the measured days."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._end = begin, end
        self._stale = self._stale_read = self._age = 0.0
        self._calls = 0

    def called(self, at: float) -> None:
        self._calls += at >= self._begin

    def count(self, first_change: float, until: float, member: Member) -> None:
        begin, end = max(first_change, self._begin), min(until, self._end)
        if end <= begin:
            return
        self._stale += end - begin
        self._stale_read += member.reads * (end - begin)
        self._age += ((end - first_change) ** 2 - (begin - first_change) ** 2) / 2

    def outcome(self, members: Sequence[Member]) -> Outcome:
        span = self._end - self._begin
        return Outcome(
            by_subject=self._stale / (span * len(members)),
            by_reader=self._stale_read / (span * sum(each.reads for each in members)),
            age_hours=self._age / (span * len(members)) / 3600,
            calls_per_day=self._calls / (span / _DAY_S),
        )
