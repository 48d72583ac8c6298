"""How many calls may be made when: a target for each hour, and the day's budget spread over what is left of the day."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tidegate.core.arguments import require_not_negative
from tidegate.systems.snapshots.prefetch.settings import PrefetchSettings

_QUARTER = timedelta(minutes=15)
"""Wherever clocks are set differently, they differ by quarters of an hour, and are changed at one."""


class Hours:
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
