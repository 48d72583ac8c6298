"""Where a call buys the most freshness.

A subject that changes λ times a day and is checked every t days is fresh for the share (1 - e^-λt) / λt of the time.
One more check a day would be worth v = (1 - (1 + λt) e^-λt) / λ, and the calls of a day are spent best when it is worth
the same everywhere: v = p / w, with the weight w of the subject's readers and one price p for all. From that follows
what one would not guess: v never reaches 1 / λ, so where λ ≥ w / p no call is worth its price. A subject that changes
all the time is stale again before anybody reads it, and is looked at as rarely as is allowed.

The true λ is not known, only its distribution (see `rates`), so v is its mean over that: who is not well known yet is
given the benefit of the doubt, and nobody is parked for a single odd check.

The price is raised when subjects ask for more calls than the budget has, and lowered when for fewer.

What a policy knows of a subject, and what it decides.

Fixed tiers: who was read lately is asked for often.

Each subject has a place of its own within its period, given by its name. So however many were first read in one moment,
their calls come evenly spread, and stay so.


How often a subject changes, learned from whether each check found a change.

A check tells only *that* something changed since the one before, not how often: the longer the time between, the less a
change says. Were every interval the same, counting would do; they are not, since what is learned decides when we look
next. So each check is weighed by its own interval.

Changes are taken for a Poisson process whose rate has a gamma distribution with the mean m and the shape a. Then

- no change within t:     m' = m / (1 + m t / a), exactly;
- a change within t:      m' = m (1 - q^(a+1)) / (1 - q^a)  with  q = 1 / (1 + m t / a), the exact mean of what is left.

The shape, which says how sure we are, is one more than the changes seen, up to a limit: what was seen long ago counts
for less, and a subject that changes its habits is followed. So the state is two columns: the mean and the count.
"""

import math
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec
import xxhash

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.settings import PrefetchSettings


class SubjectFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the row of a subject says that bears on when to ask for it."""

    subject: SnapshotSubject
    version: int = 0
    upstream_id: str | None = None
    last_checked_at: datetime | None = None
    last_asked_at: datetime | None = None
    """When somebody last read it."""
    change_rate: float | None = None
    """Changes per day, as learned; None: never checked twice."""
    changes: int = 0
    """Checks that found a change; the first one of all, which has nothing to compare with, is none."""
    next_due_at: datetime | None = None
    """When somebody has to look at it again."""


class PrefetchPolicy(Protocol):
    """Decides when subjects are due. Asking it costs nothing and changes nothing."""

    def due_at(self, facts: SubjectFacts, now: datetime) -> datetime:
        """When to ask for the subject next, by what is known `now`; not later than `now` means at once."""
        ...


def fraction(subject: SnapshotSubject, salt: int = 0) -> float:
    """A number from 0 to 1 that belongs to the subject, the same in every process; spread evenly over all subjects."""
    return xxhash.xxh3_64_intdigest(subject.id.encode(), seed=salt % 2**32) / 2**64


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_BEFORE = 0.25
"""A place that comes so soon (in periods) after a check is passed over: a reader's wish has just been served."""


class Tier(StrEnum):
    """How lately a subject was read."""

    HOT = "HOT"
    WARM = "WARM"
    COLD = "COLD"


TIER_NUMBERS = {Tier.HOT: 0, Tier.WARM: 1, Tier.COLD: 2}
"""As rows have them."""


def tier_of(last_asked_at: datetime | None, now: datetime, settings: PrefetchSettings) -> Tier:
    """The tier of a subject that was last read then."""
    if last_asked_at is None or now - last_asked_at > settings.warm_within:
        return Tier.COLD
    return Tier.HOT if now - last_asked_at <= settings.hot_within else Tier.WARM


class FixedTiers:
    """A `PrefetchPolicy`: a period for each tier. The time between two checks is a quarter longer at most."""

    def __init__(self, settings: PrefetchSettings) -> None:
        self._settings = settings
        self._periods = {
            Tier.HOT: settings.hot_every,
            Tier.WARM: settings.warm_every,
            Tier.COLD: settings.cold_every,
        }

    def due_at(self, facts: SubjectFacts, now: datetime) -> datetime:
        """The subject's own place in its period, the first one that is not too soon after its last check."""
        period = self._periods[tier_of(facts.last_asked_at, now, self._settings)]
        if facts.last_checked_at is None:
            return now
        return next_place(facts.last_checked_at + _NOT_BEFORE * period, period, fraction(facts.subject))


def next_place(after: datetime, period: timedelta, place: float) -> datetime:
    """The first moment later than `after` that lies at `place` (from 0 to 1) within the periods since the epoch."""
    offset = _EPOCH + place * period
    return offset + ((after - offset) // period + 1) * period


PRIOR_RATE = 1.0
"""Changes per day of a subject that nothing is known of."""
LEAST_RATE = 1 / 365
MOST_RATE = 24.0 * 60.0
"""Nothing is learned beyond: once in a year, once in a minute."""
_A_MOMENT = 1e-8
"""A thousandth of a second, in days: two checks that close are one."""
_PRIOR_SHAPE = 1.0
_MOST_SHAPE = 12.0


def learn(rate: float | None, changes: int, elapsed_days: float, *, changed: bool) -> float:
    """The rate after a check, `elapsed_days` after the one before, that found a change or none.

    `changes`: how many checks found one before. The result is always from `LEAST_RATE` to `MOST_RATE`.
    """
    require_not_negative("elapsed_days", elapsed_days)
    mean = PRIOR_RATE if rate is None else min(max(rate, LEAST_RATE), MOST_RATE)
    if elapsed_days < _A_MOMENT:
        return mean
    shape = shape_of(changes)
    log_q = -math.log1p(mean * elapsed_days / shape)
    factor = math.expm1((shape + 1) * log_q) / math.expm1(shape * log_q) if changed else math.exp(log_q)
    return min(max(mean * factor, LEAST_RATE), MOST_RATE)


def shape_of(changes: int) -> float:
    """How sure we are of a rate after so many checks that found a change."""
    require_not_negative("changes", changes)
    return min(_PRIOR_SHAPE + changes, _MOST_SHAPE)


FIRST_PRICE = 0.25
LEAST_PRICE, MOST_PRICE = 1e-6, 1e6
_DAY = timedelta(days=1)
_SPREAD = 0.1
_WEIGHTS = {Tier.HOT: 8.0, Tier.WARM: 3.0, Tier.COLD: 1.0}
"""What a subject's freshness is worth: more where readers are."""
_LEAST_BEYOND = 1e-6
_PRECISION = 1.001
_ADJUST_EVERY = timedelta(hours=1)
_GAIN = 0.5
_MOST_STEP = 0.5


def worth_of_a_check(rate: float, changes: int, every_days: float) -> float:
    """What one more check a day would add to the freshness of a subject that is checked `every_days`, in days.

    It grows with the time between checks, towards a limit that is lower for those that change more often.
    """
    require_positive("rate", rate)
    require_positive("every_days", every_days)
    shape = shape_of(changes)
    scale = shape / rate
    left = math.log(scale / (scale + every_days))
    # Of a gamma distribution: the means of (1 - e^-λt) / λ and of t e^-λt. A shape of 1 would divide by zero.
    beyond = max(shape - 1, _LEAST_BEYOND)
    return scale * -math.expm1(beyond * left) / beyond - every_days * math.exp(shape * left)


def best_interval(rate: float, changes: int, worth: float, *, shortest: float, longest: float) -> float:
    """The days between two checks at which one more would be worth just that much; within the bounds."""
    require_positive("worth", worth)
    if worth_of_a_check(rate, changes, longest) <= worth:
        return longest
    if worth_of_a_check(rate, changes, shortest) >= worth:
        return shortest
    low, high = shortest, longest
    while high > low * _PRECISION:
        middle = math.sqrt(low * high)
        if worth_of_a_check(rate, changes, middle) < worth:
            low = middle
        else:
            high = middle
    return high


class LearnedRates:
    """A `PrefetchPolicy`: the calls go where they buy the most freshness, by the rates that were learned."""

    def __init__(self, settings: PrefetchSettings, price: float = FIRST_PRICE) -> None:
        require_positive("price", price)
        self._settings = settings
        self.price = min(max(price, LEAST_PRICE), MOST_PRICE)
        """What a call has to be worth: the one multiplier for all subjects."""

    def due_at(self, facts: SubjectFacts, now: datetime) -> datetime:
        """As long after the last check as is best; a tenth sooner or later, so that no crowd stays together."""
        if facts.last_checked_at is None:
            return now
        shift = 1 + _SPREAD * (2 * fraction(facts.subject, salt=facts.version) - 1)
        return facts.last_checked_at + shift * self.interval(facts, now)

    def interval(self, facts: SubjectFacts, now: datetime) -> timedelta:
        """How long to wait between two checks."""
        weight = _WEIGHTS[tier_of(facts.last_asked_at, now, self._settings)]
        days = best_interval(
            facts.change_rate or PRIOR_RATE,
            facts.changes,
            self.price / weight,
            shortest=self._settings.shortest / _DAY,
            longest=self._settings.longest / _DAY,
        )
        return days * _DAY


class PriceFinder:
    """Finds the price at which all subjects together ask for what the budget has.

    Nobody counts all subjects for that: those that come by are as many as there were calls, and whether each waits for
    longer than it did before, or for less, tells how many calls there will be at the present price.
    """

    def __init__(self, began: datetime) -> None:
        self._began, self._seen, self._growth = began, 0, 0.0

    def observe(self, waited: timedelta, next_interval: timedelta) -> None:
        """A subject is asked for, `waited` after its last check, and is to wait for `next_interval` now."""
        require_positive("next_interval", next_interval.total_seconds())
        self._seen += 1
        if waited > timedelta(0):
            self._growth += math.log(waited / next_interval)

    def adjust(self, price: float, per_second: float, now: datetime) -> float | None:
        """The new price, given what may be spent in a second; None while too little was seen to tell."""
        span = (now - self._began).total_seconds()
        if span < _ADJUST_EVERY.total_seconds() or per_second <= 0:
            return None
        seen = max(self._seen, 1)
        step = _GAIN * (math.log(seen / span / per_second) + self._growth / seen)
        self._began, self._seen, self._growth = now, 0, 0.0
        return min(max(price * math.exp(min(max(step, -_MOST_STEP), _MOST_STEP)), LEAST_PRICE), MOST_PRICE)
