"""When a subject is due for its next refresh: by fixed tiers, or by learned change rates.

**Fixed tiers.** A subject that was read recently is refreshed more often. Each subject has a fixed position within its
period, derived from its id. So calls are spread evenly, however many subjects were first read at the same time.

**Learned rates.** A check tells only that something changed since the check before, not how often: the longer the
interval, the less it tells. Intervals differ, since they follow from what was learned, so each check is weighed by its
interval. Changes are modelled as a Poisson process with a gamma-distributed rate of mean m and shape a:

- no change within t:     m' = m / (1 + m t / a), exactly;
- a change within t:      m' = m (1 - q^(a+1)) / (1 - q^a)  with  q = 1 / (1 + m t / a), the exact posterior mean.

The shape, which expresses confidence, is one more than the number of changes seen, up to a limit: old observations lose
weight, so a subject that changes its rate is followed. The state is two columns: mean and count.

A subject that changes λ times a day and is checked every t days is fresh for the share (1 - e^-λt) / λt of the time.
One more check a day adds v = (1 - (1 + λt) e^-λt) / λ. The calls of a day are spent best when a call is worth the same
for every subject: v = p / w, with the weight w of the subject's readers and one price p for all. v never reaches 1 / λ,
so for λ ≥ w / p no call is worth its price: a subject that changes all the time is outdated before it is read, and is
checked as rarely as allowed. Since only the distribution of λ is known, v is its mean over that distribution; a subject
with few observations is therefore still checked.

The price rises when subjects require more calls than the budget has, and falls when they require fewer.
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
    """The columns of a subject's row that decide when it is due."""

    subject: SnapshotSubject
    version: int = 0
    upstream_id: str | None = None
    last_checked_at: datetime | None = None
    last_asked_at: datetime | None = None
    """When a reader last read it."""
    change_rate: float | None = None
    """Learned changes per day; None: not checked twice yet."""
    changes: int = 0
    """Number of checks that found a change, without the first check, which has nothing to compare with."""
    next_due_at: datetime | None = None
    """When the planner has to examine it next."""


class PrefetchPolicy(Protocol):
    """Decides when subjects are due. Has no side effects."""

    def due_at(self, facts: SubjectFacts, now: datetime) -> datetime:
        """Return when the subject is due; a time not after `now` means at once."""
        ...


def fraction(subject: SnapshotSubject, salt: int = 0) -> float:
    """Return a number from 0 to 1 derived from the subject: equal in every process, uniform over all subjects."""
    return xxhash.xxh3_64_intdigest(subject.id.encode(), seed=salt % 2**32) / 2**64


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SKIPPED_SHARE = 0.25
"""A position that follows a check within this share of the period is skipped."""


class Tier(StrEnum):
    """How recently a subject was read."""

    HOT = "HOT"
    WARM = "WARM"
    COLD = "COLD"


TIER_NUMBERS = {Tier.HOT: 0, Tier.WARM: 1, Tier.COLD: 2}
"""Numbers of the tiers in the table."""


def tier_of(last_asked_at: datetime | None, now: datetime, settings: PrefetchSettings) -> Tier:
    """Return the tier of a subject by its last read."""
    if last_asked_at is None or now - last_asked_at > settings.warm_within:
        return Tier.COLD
    return Tier.HOT if now - last_asked_at <= settings.hot_within else Tier.WARM


class FixedTiers:
    """The policy `tiers`: one period per tier. Two checks are at most a quarter longer apart than the period."""

    def __init__(self, settings: PrefetchSettings) -> None:
        self._settings = settings
        self._periods = {
            Tier.HOT: settings.hot_every,
            Tier.WARM: settings.warm_every,
            Tier.COLD: settings.cold_every,
        }

    def due_at(self, facts: SubjectFacts, now: datetime) -> datetime:
        """See `PrefetchPolicy`: the next position of the subject that is not too soon after its last check."""
        period = self._periods[tier_of(facts.last_asked_at, now, self._settings)]
        if facts.last_checked_at is None:
            return now
        return next_position(facts.last_checked_at + _SKIPPED_SHARE * period, period, fraction(facts.subject))


def next_position(after: datetime, period: timedelta, place: float) -> datetime:
    """Return the first time after `after` at position `place` (0 to 1) of a period; periods count from the epoch."""
    offset = _EPOCH + place * period
    # Floor division, so the result is later than `after` even if that is exactly at the position.
    return offset + ((after - offset) // period + 1) * period


PRIOR_RATE = 1.0
"""Changes per day that are assumed of a new subject."""
LEAST_RATE = 1 / 365
MOST_RATE = 24.0 * 60.0
"""Bounds of learned rates: once a year, once a minute."""
_SHORTEST_ELAPSED = 1e-8
"""In days, about a millisecond: two checks closer than that count as one."""
_PRIOR_SHAPE = 1.0
_MOST_SHAPE = 12.0


def learn(rate: float | None, changes: int, elapsed_days: float, *, changed: bool) -> float:
    """Return the change rate after a check that came `elapsed_days` after the previous one.

    `changes`: number of earlier checks that found a change. The result is between `LEAST_RATE` and `MOST_RATE`.
    """
    require_not_negative("elapsed_days", elapsed_days)
    mean = PRIOR_RATE if rate is None else min(max(rate, LEAST_RATE), MOST_RATE)
    if elapsed_days < _SHORTEST_ELAPSED:
        return mean
    shape = shape_of(changes)
    # `log1p` and `expm1` keep the precision for short intervals, where q is close to 1.
    log_q = -math.log1p(mean * elapsed_days / shape)
    factor = math.expm1((shape + 1) * log_q) / math.expm1(shape * log_q) if changed else math.exp(log_q)
    return min(max(mean * factor, LEAST_RATE), MOST_RATE)


def shape_of(changes: int) -> float:
    """Return the shape of the distribution after `changes` checks that found a change."""
    require_not_negative("changes", changes)
    return min(_PRIOR_SHAPE + changes, _MOST_SHAPE)


FIRST_PRICE = 0.25
LEAST_PRICE, MOST_PRICE = 1e-6, 1e6
_DAY = timedelta(days=1)
_SPREAD = 0.1
_WEIGHTS = {Tier.HOT: 8.0, Tier.WARM: 3.0, Tier.COLD: 1.0}
"""Weight of a subject's freshness: higher if it is read more."""
_LEAST_BEYOND = 1e-6
_PRECISION = 1.001
_ADJUST_EVERY = timedelta(hours=1)
_GAIN = 0.5
_MOST_STEP = 0.5


def worth_of_a_check(rate: float, changes: int, every_days: float) -> float:
    """Return what one more check a day adds to the freshness of a subject checked `every_days`, in days.

    It grows with the interval, towards a limit that is lower for subjects that change more often.
    """
    require_positive("rate", rate)
    require_positive("every_days", every_days)
    shape = shape_of(changes)
    scale = shape / rate
    left = math.log(scale / (scale + every_days))
    # Means over a gamma distribution of (1 - e^-λt) / λ and of t e^-λt. A shape of 1 would divide by zero.
    beyond = max(shape - 1, _LEAST_BEYOND)
    return scale * -math.expm1(beyond * left) / beyond - every_days * math.exp(shape * left)


def best_interval(rate: float, changes: int, worth: float, *, shortest: float, longest: float) -> float:
    """Return the interval in days at which one more check is worth `worth`; within the bounds."""
    require_positive("worth", worth)
    if worth_of_a_check(rate, changes, longest) <= worth:
        return longest
    if worth_of_a_check(rate, changes, shortest) >= worth:
        return shortest
    low, high = shortest, longest
    while high > low * _PRECISION:
        # Bisection on a logarithmic scale, because the bounds may differ by orders of magnitude. The
        # worth grows with the interval.
        middle = math.sqrt(low * high)
        if worth_of_a_check(rate, changes, middle) < worth:
            low = middle
        else:
            high = middle
    return high


class LearnedRates:
    """The policy `learned`: spends calls where they add the most freshness, by learned change rates."""

    def __init__(self, settings: PrefetchSettings, price: float = FIRST_PRICE) -> None:
        require_positive("price", price)
        self._settings = settings
        self.price = min(max(price, LEAST_PRICE), MOST_PRICE)
        """What a call has to be worth, for all subjects."""

    def due_at(self, facts: SubjectFacts, now: datetime) -> datetime:
        """See `PrefetchPolicy`: the best interval after the last check, varied by a tenth to spread subjects."""
        if facts.last_checked_at is None:
            return now
        # Derived from the version and not random: the same row gives the same due time in every process, and another
        # one after each refresh.
        shift = 1 + _SPREAD * (2 * fraction(facts.subject, salt=facts.version) - 1)
        return facts.last_checked_at + shift * self.interval(facts, now)

    def interval(self, facts: SubjectFacts, now: datetime) -> timedelta:
        """Return the best time between two checks."""
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
    """Finds the price at which all subjects together require as many calls as the budget has.

    Does not scan all subjects: the subjects that are refreshed are a sample, and whether their next interval is longer
    or shorter than the last one tells how many calls the current price will require.
    """

    def __init__(self, began: datetime) -> None:
        self._began, self._seen, self._growth = began, 0, 0.0

    def observe(self, waited: timedelta, next_interval: timedelta) -> None:
        """Record a refresh that comes `waited` after the last check and is followed by `next_interval`."""
        require_positive("next_interval", next_interval.total_seconds())
        self._seen += 1
        if waited > timedelta(0):
            # In logarithms: the mean of the ratios themselves overestimates the demand when rates are uncertain
            # (decision 0013).
            self._growth += math.log(waited / next_interval)

    def adjust(self, price: float, per_second: float, now: datetime) -> float | None:
        """Return the new price for a budget of `per_second` calls; None while there are too few observations."""
        span = (now - self._began).total_seconds()
        if span < _ADJUST_EVERY.total_seconds() or per_second <= 0:
            return None
        seen = max(self._seen, 1)
        # Two signals: calls made against calls allowed, and the trend of the intervals. The step is
        # damped, since both are noisy.
        step = _GAIN * (math.log(seen / span / per_second) + self._growth / seen)
        self._began, self._seen, self._growth = now, 0, 0.0
        return min(max(price * math.exp(min(max(step, -_MOST_STEP), _MOST_STEP)), LEAST_PRICE), MOST_PRICE)
