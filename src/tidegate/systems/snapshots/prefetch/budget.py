"""How many calls may be made when: a target for each hour, and the day's budget spread over what is left of the day.

Which tier's subjects are asked for next, where not all that are due can be.

Each tier has a lane: its subjects that are due, the longest first. A tier is given its share of the calls, if it has as
many due; what it leaves goes to HOT, then WARM, then COLD. So COLD subjects, which are the most, do not take the calls
of subjects that are read, and no tier waits forever.


Back-pressure: nothing more is asked for by the clock while workers have more than they do in half an hour.

Events that wait longer are of no use to anybody: what they ask for is due again before they are served, and the topic
only grows. How much workers do is measured while they have work; until then, the pace that the hour allows is believed.
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
"""Wherever clocks are set differently, they differ by quarters of an hour, and are changed at one."""


class CallBudget:
    """The targets, by the clocks of one time zone."""

    def __init__(self, settings: PrefetchSettings) -> None:
        self._settings, self._zone = settings, ZoneInfo(settings.timezone)

    @property
    def budget(self) -> int:
        """The most calls in a day."""
        return self._settings.daily_budget

    def day_of(self, now: datetime) -> date:
        """The day whose budget a call at `now` is booked on."""
        return now.astimezone(self._zone).date()

    def hour_of(self, now: datetime) -> int:
        """The hour of that day, from 0 to 23."""
        return now.astimezone(self._zone).hour

    def next_day(self, now: datetime) -> datetime:
        """When the next budget begins, in UTC."""
        tomorrow = self.day_of(now) + timedelta(days=1)
        return datetime.combine(tomorrow, time(), self._zone).astimezone(UTC)

    def target(self, now: datetime) -> float:
        """The most calls in a second, whatever the budget."""
        evening = self._settings.evening_begins <= self.hour_of(now) < self._settings.evening_ends
        return self._settings.evening_rate if evening else self._settings.rate

    def capacity(self, begin: datetime, end: datetime) -> float:
        """How many calls the targets allow from `begin` to `end`."""
        total, at = 0.0, begin.astimezone(UTC)
        while at < end:
            midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
            until = min(end, midnight + ((at - midnight) // _QUARTER + 1) * _QUARTER)
            total += self.target(at) * (until - at).total_seconds()
            at = until
        return total

    def rate(self, now: datetime, spent: int) -> float:
        """Calls in a second such that what is left of the budget lasts until midnight; never above the target.

        A busy hour gets its share in proportion to its target. 0: the budget is spent.
        """
        require_not_negative("spent", spent)
        left = self._settings.daily_budget - spent
        if left <= 0:
            return 0.0
        return self.target(now) * min(1.0, left / self.capacity(now, self.next_day(now)))

    def mean_rate(self, now: datetime) -> float:
        """Calls in a second over a whole day: what budget and targets allow together."""
        capacity = self.capacity(now, now + timedelta(days=1))
        return min(self._settings.daily_budget, capacity) / timedelta(days=1).total_seconds()


_NEARLY = 1e-9
"""Shares add up in fractions, and must not owe a whole call to rounding."""
_MOST_SAVED = 2.0
"""Calls that a tier may save: one that it is due, and one while another tier has its turn."""


class TierSplit(msgspec.Struct, frozen=True):
    """How many calls each tier is given."""

    take: Mapping[Tier, int]
    credits: Mapping[Tier, float]
    """What each tier has left of its share, or was given beyond it, in calls."""


class TierShares:
    """Divides calls by the shares of the settings; fractions of a call are carried over to the next division."""

    def __init__(self, settings: PrefetchSettings) -> None:
        self._settings = settings
        self._shares = {
            Tier.HOT: settings.hot_share,
            Tier.WARM: settings.warm_share,
            Tier.COLD: settings.cold_share,
        }
        self._credits = dict.fromkeys(Tier, 0.0)

    def tier_of(self, facts: SubjectFacts, now: datetime) -> Tier:
        """The tier of a subject by what is known now."""
        return tier_of(facts.last_asked_at, now, self._settings)

    def split(self, due: Mapping[Tier, int], most: int) -> TierSplit:
        """Divide up to `most` calls among so many that are due. Changes nothing: see `note`."""
        left, take = most, dict.fromkeys(Tier, 0)
        # A tier that has nothing due does not save up: its share goes to the others.
        funds = {tier: self._credits[tier] + share * most if due[tier] else 0.0 for tier, share in self._shares.items()}
        for tier in Tier:
            take[tier] = max(0, min(floor(funds[tier] + _NEARLY), due[tier], left))
            left -= take[tier]
        for tier in Tier:
            more = min(left, due[tier] - take[tier])
            take[tier] += more
            left -= more
        # What came on top of a share is no debt, or a tier would pay later for calls that no other wanted then.
        return TierSplit(take, {tier: min(_MOST_SAVED, max(0.0, funds[tier] - take[tier])) for tier in Tier})

    def note(self, split: TierSplit) -> None:
        """The calls of this division were booked."""
        self._credits = dict(split.credits)


_WITHIN = timedelta(minutes=30)
"""What waits for longer than this waits in vain."""
_LOOK_EVERY = timedelta(seconds=10)
_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(minutes=5)
_BUSY = 100
"""With so many waiting, workers have something to do all the time: then what they do is what they can."""
_WEIGHT = 0.3


class WorkerBacklog:
    """What waits for the workers of a topic."""

    def __init__(self, lag: Callable[[], Awaitable[int]]) -> None:
        self._lag = lag
        self._waiting, self._added = 0, 0
        self._looked_at: datetime | None = None
        self._pace: float | None = None

    def add(self, events: int) -> None:
        """So many more were published."""
        self._added += events

    async def rest(self, now: datetime, pace: float) -> timedelta:
        """How long nothing should be added; none where there is room. `pace`: events per second, as long as nothing
        better is known."""
        if self._looked_at is None or now - self._looked_at >= _LOOK_EVERY:
            self._learn(await self._lag(), now)
        known = pace if self._pace is None else self._pace
        too_many = self._waiting + self._added - max(_BUSY, known * _WITHIN.total_seconds())
        if too_many < 0:
            return timedelta(0)
        return min(max(_SHORTEST, timedelta(seconds=too_many / max(known, 0.01))), _LONGEST)

    def _learn(self, waiting: int, now: datetime) -> None:
        if self._looked_at is not None and min(waiting, self._waiting) >= _BUSY:
            done = self._waiting + self._added - waiting
            pace = max(0.0, done / (now - self._looked_at).total_seconds())
            self._pace = pace if self._pace is None else self._pace + _WEIGHT * (pace - self._pace)
        elif waiting < _BUSY:
            self._pace = None
        self._waiting, self._added, self._looked_at = waiting, 0, now
