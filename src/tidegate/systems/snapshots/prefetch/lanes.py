"""Which tier's subjects are asked for next, where not all that are due can be.

Each tier has a lane: its subjects that are due, the longest first. A tier is given its share of the calls, if it has as
many due; what it leaves goes to HOT, then WARM, then COLD. So COLD subjects, which are the most, do not take the calls
of subjects that are read, and no tier waits forever.
"""

from collections.abc import Mapping
from datetime import datetime
from math import floor

import msgspec

from tidegate.systems.snapshots.prefetch.facts import Facts
from tidegate.systems.snapshots.prefetch.settings import PrefetchSettings
from tidegate.systems.snapshots.prefetch.tiers import Tier, tier_of

_NEARLY = 1e-9
"""Shares add up in fractions, and must not owe a whole call to rounding."""
_MOST_SAVED = 2.0
"""Calls that a tier may save: one that it is due, and one while another tier has its turn."""


class Split(msgspec.Struct, frozen=True):
    """How many calls each tier is given."""

    take: Mapping[Tier, int]
    credits: Mapping[Tier, float]
    """What each tier has left of its share, or was given beyond it, in calls."""


class Lanes:
    """Divides calls by the shares of the settings; fractions of a call are carried over to the next division."""

    def __init__(self, settings: PrefetchSettings) -> None:
        self._settings = settings
        self._shares = {
            Tier.HOT: settings.hot_share,
            Tier.WARM: settings.warm_share,
            Tier.COLD: settings.cold_share,
        }
        self._credits = dict.fromkeys(Tier, 0.0)

    def tier_of(self, facts: Facts, now: datetime) -> Tier:
        """The tier of a subject by what is known now."""
        return tier_of(facts.last_asked_at, now, self._settings)

    def split(self, due: Mapping[Tier, int], most: int) -> Split:
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
        return Split(take, {tier: min(_MOST_SAVED, max(0.0, funds[tier] - take[tier])) for tier in Tier})

    def note(self, split: Split) -> None:
        """The calls of this division were booked."""
        self._credits = dict(split.credits)
