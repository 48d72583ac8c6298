"""How many calls prefetch may make now: by hour and day, by tier, and by what workers can process.

`CallBudget` has a target rate for each hour, and spreads the rest of the daily budget over the rest of the day.

`TierShares` divides calls among the tiers. Each tier gets its share if enough of its subjects are due; the rest goes to
HOT, then WARM, then COLD. So the many COLD subjects do not take the calls of subjects that are read, and no tier waits
forever.

`WorkerBacklog` stops prefetch while more events wait than the workers process in half an hour. Events that wait longer
are useless: their subjects are due again before they are processed. The pace of the workers is measured while they are
busy; until then the pace of the hour is assumed.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from math import floor
from zoneinfo import ZoneInfo

import msgspec

from tidegate.core.arguments import require_not_negative
from tidegate.systems.snapshots.prefetch.policies import SubjectFacts, Tier, tier_of
from tidegate.systems.snapshots.settings import PrefetchSettings

_QUARTER = timedelta(minutes=15)
"""Time zones differ by quarters of an hour, and clocks change at one."""


class CallBudget:
    """Calls allowed per hour and day, in the configured time zone."""

    def __init__(self, settings: PrefetchSettings) -> None:
        self._settings, self._zone = settings, ZoneInfo(settings.timezone)

    @property
    def budget(self) -> int:
        """Maximum calls per day."""
        return self._settings.daily_budget

    def day_of(self, now: datetime) -> date:
        """Return the day of the budget that a call at `now` uses."""
        return now.astimezone(self._zone).date()

    def hour_of(self, now: datetime) -> int:
        """Return the hour of the day, 0 to 23."""
        return now.astimezone(self._zone).hour

    def next_day(self, now: datetime) -> datetime:
        """Return when the budget of the next day begins, in UTC."""
        tomorrow = self.day_of(now) + timedelta(days=1)
        return datetime.combine(tomorrow, time(), self._zone).astimezone(UTC)

    def target(self, now: datetime) -> float:
        """Return the maximum calls per second of the hour, regardless of the daily budget."""
        evening = self._settings.evening_begins <= self.hour_of(now) < self._settings.evening_ends
        return self._settings.evening_rate if evening else self._settings.rate

    def capacity(self, begin: datetime, end: datetime) -> float:
        """Return how many calls the targets allow from `begin` to `end`."""
        total, at = 0.0, begin.astimezone(UTC)
        while at < end:
            # Add up quarter by quarter in UTC: within a quarter the target is constant, also when the clocks change.
            midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
            until = min(end, midnight + ((at - midnight) // _QUARTER + 1) * _QUARTER)
            total += self.target(at) * (until - at).total_seconds()
            at = until
        return total

    def rate(self, now: datetime, spent: int) -> float:
        """Return the calls per second at which the remaining daily budget lasts until midnight; 0 if it is spent.

        Never more than `target(now)`. If the budget is too small for the targets of the remaining hours, the rates of
        all hours are reduced by the same factor.
        """
        require_not_negative("spent", spent)
        left = self._settings.daily_budget - spent
        if left <= 0:
            return 0.0
        # Scale every hour by the same factor, so that all of them together use what is left.
        return self.target(now) * min(1.0, left / self.capacity(now, self.next_day(now)))

    def mean_rate(self, now: datetime) -> float:
        """Return the average calls per second over a day that budget and targets allow."""
        capacity = self.capacity(now, now + timedelta(days=1))
        return min(self._settings.daily_budget, capacity) / timedelta(days=1).total_seconds()


_NEARLY = 1e-9
"""Tolerance for rounding when fractions of calls are added."""
_MOST_SAVED = 2.0
"""Calls that a tier can carry over to later divisions."""


class TierSplit(msgspec.Struct, frozen=True):
    """A division of calls among the tiers."""

    take: Mapping[Tier, int]
    carried: Mapping[Tier, float]
    """Fractions of calls that each tier carries over."""


class TierShares:
    """Divides calls among the tiers by the configured shares; fractions of calls are carried over."""

    def __init__(self, settings: PrefetchSettings) -> None:
        self._settings = settings
        self._shares = {
            Tier.HOT: settings.hot_share,
            Tier.WARM: settings.warm_share,
            Tier.COLD: settings.cold_share,
        }
        self._carried = dict.fromkeys(Tier, 0.0)

    def tier_of(self, facts: SubjectFacts, now: datetime) -> Tier:
        """Return the tier of a subject."""
        return tier_of(facts.last_asked_at, now, self._settings)

    def split(self, due: Mapping[Tier, int], most: int) -> TierSplit:
        """Divide up to `most` calls among due subjects. Takes effect only with `apply`."""
        left, take = most, dict.fromkeys(Tier, 0)
        # A tier without due subjects does not carry over: its share goes to the others.
        funds = {tier: self._carried[tier] + share * most if due[tier] else 0.0 for tier, share in self._shares.items()}
        for tier in Tier:
            # First each tier gets its own share ...
            take[tier] = max(0, min(floor(funds[tier] + _NEARLY), due[tier], left))
            left -= take[tier]
        for tier in Tier:
            # ... then the rest goes to the tiers in their order, as far as they have due subjects.
            more = min(left, due[tier] - take[tier])
            take[tier] += more
            left -= more
        # Calls beyond a share are no debt: no other tier needed them.
        return TierSplit(take, {tier: min(_MOST_SAVED, max(0.0, funds[tier] - take[tier])) for tier in Tier})

    def apply(self, split: TierSplit) -> None:
        """Carry over the fractions of a division after its calls were booked."""
        self._carried = dict(split.carried)


_WITHIN = timedelta(minutes=30)
"""An event that waits longer is useless."""
_READ_EVERY = timedelta(seconds=10)
_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(minutes=5)
_BUSY = 100
"""With this many waiting events, workers are busy all the time, so their pace can be measured."""
_WEIGHT = 0.3


class WorkerBacklog:
    """Back-pressure of the workers of one topic."""

    def __init__(self, lag: Callable[[], Awaitable[int]]) -> None:
        self._lag = lag
        self._waiting, self._added = 0, 0
        self._read_at: datetime | None = None
        self._pace: float | None = None

    def add(self, events: int) -> None:
        """Count newly published events."""
        self._added += events

    async def pause(self, now: datetime, pace: float) -> timedelta:
        """Return how long nothing should be published; zero if there is room.

        `pace`: events per second that are assumed until the workers' pace is measured.
        """
        # The lag is read rarely; in between, `add` counts what was published on top.
        if self._read_at is None or now - self._read_at >= _READ_EVERY:
            self._learn(await self._lag(), now)
        known = pace if self._pace is None else self._pace
        too_many = self._waiting + self._added - max(_BUSY, known * _WITHIN.total_seconds())
        if too_many < 0:
            return timedelta(0)
        return min(max(_SHORTEST, timedelta(seconds=too_many / max(known, 0.01))), _LONGEST)

    def _learn(self, waiting: int, now: datetime) -> None:
        # The pace can be measured only if workers had enough to do at both ends of the interval.
        if self._read_at is not None and min(waiting, self._waiting) >= _BUSY:
            done = self._waiting + self._added - waiting
            pace = max(0.0, done / (now - self._read_at).total_seconds())
            self._pace = pace if self._pace is None else self._pace + _WEIGHT * (pace - self._pace)
        # Workers that had nothing to do show no pace. Forget the last one, which may be of another number of workers.
        elif waiting < _BUSY:
            self._pace = None
        self._waiting, self._added, self._read_at = waiting, 0, now
