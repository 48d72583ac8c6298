"""Where a call buys the most freshness.

A subject that changes λ times a day and is checked every t days is fresh for the share (1 - e^-λt) / λt of the time.
One more check a day would be worth v = (1 - (1 + λt) e^-λt) / λ, and the calls of a day are spent best when it is worth
the same everywhere: v = p / w, with the weight w of the subject's readers and one price p for all. From that follows
what one would not guess: v never reaches 1 / λ, so where λ ≥ w / p no call is worth its price. A subject that changes
all the time is stale again before anybody reads it, and is looked at as rarely as is allowed.

The true λ is not known, only its distribution (see `rates`), so v is its mean over that: who is not well known yet is
given the benefit of the doubt, and nobody is parked for a single odd check.

The price is raised when subjects ask for more calls than the budget has, and lowered when for fewer.
"""

import math
from datetime import datetime, timedelta

from tidegate.core.arguments import require_positive
from tidegate.systems.snapshots.prefetch.facts import Facts, fraction
from tidegate.systems.snapshots.prefetch.rates import PRIOR_RATE, shape_of
from tidegate.systems.snapshots.prefetch.settings import PrefetchSettings
from tidegate.systems.snapshots.prefetch.tiers import Tier, tier_of

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
    """A `Policy`: the calls go where they buy the most freshness, by the rates that were learned."""

    def __init__(self, settings: PrefetchSettings, price: float = FIRST_PRICE) -> None:
        require_positive("price", price)
        self._settings = settings
        self.price = min(max(price, LEAST_PRICE), MOST_PRICE)
        """What a call has to be worth: the one multiplier for all subjects."""

    def due_at(self, facts: Facts, now: datetime) -> datetime:
        """As long after the last check as is best; a tenth sooner or later, so that no crowd stays together."""
        if facts.last_checked_at is None:
            return now
        shift = 1 + _SPREAD * (2 * fraction(facts.subject, salt=facts.version) - 1)
        return facts.last_checked_at + shift * self.interval(facts, now)

    def interval(self, facts: Facts, now: datetime) -> timedelta:
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
