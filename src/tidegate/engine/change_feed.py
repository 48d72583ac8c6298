"""Tells everybody who watches a run that it moved: see `tidegate.runtime.change_feed`."""

from datetime import timedelta

from tidegate.runtime import change_feed
from tidegate.runtime.change_feed import Watch
from tidegate.storage.valkey import Unit, Valkey

__all__ = ["ChangeFeed", "Watch"]

_GAP = timedelta(milliseconds=50)
"""Of many moves in a row, people see no more anyway."""


class ChangeFeed(change_feed.ChangeFeed[int]):
    """The board of one unit: which runs moved."""

    def __init__(self, valkey: Valkey, unit: Unit) -> None:
        super().__init__(valkey, unit.key("bulletin"), int, field=b"runs", gap=_GAP)
