"""Fixed tiers: who was read lately is asked for often.

Each subject has a place of its own within its period, given by its name. So however many were first read in one moment,
their calls come evenly spread, and stay so.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tidegate.systems.snapshots.prefetch.facts import Facts, fraction
from tidegate.systems.snapshots.prefetch.settings import PrefetchSettings

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
    """A `Policy`: a period for each tier. The time between two checks is a quarter longer at most."""

    def __init__(self, settings: PrefetchSettings) -> None:
        self._settings = settings
        self._periods = {
            Tier.HOT: settings.hot_every,
            Tier.WARM: settings.warm_every,
            Tier.COLD: settings.cold_every,
        }

    def due_at(self, facts: Facts, now: datetime) -> datetime:
        """The subject's own place in its period, the first one that is not too soon after its last check."""
        period = self._periods[tier_of(facts.last_asked_at, now, self._settings)]
        if facts.last_checked_at is None:
            return now
        return next_place(facts.last_checked_at + _NOT_BEFORE * period, period, fraction(facts.subject))


def next_place(after: datetime, period: timedelta, place: float) -> datetime:
    """The first moment later than `after` that lies at `place` (from 0 to 1) within the periods since the epoch."""
    offset = _EPOCH + place * period
    return offset + ((after - offset) // period + 1) * period
