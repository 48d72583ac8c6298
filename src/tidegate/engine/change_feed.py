"""Notifies the watchers of a run that it changed: see `tidegate.runtime.change_feed`."""

from datetime import timedelta

from tidegate.runtime import change_feed
from tidegate.runtime.change_feed import Watch
from tidegate.storage.valkey import Unit, Valkey

__all__ = ["RunChangeFeed", "Watch"]

_GAP = timedelta(milliseconds=50)
"""Minimum time between two entries: several changes are reported together."""


class RunChangeFeed(change_feed.ChangeFeed[int]):
    """The change feed of one unit: the ids of runs that changed."""

    def __init__(self, valkey: Valkey, unit: Unit) -> None:
        super().__init__(valkey, unit.key("change_feed"), int, field=b"runs", gap=_GAP)
