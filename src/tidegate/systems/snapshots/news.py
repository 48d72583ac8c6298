"""Tells readers that subjects were refreshed, in whatever process that was done: see `tidegate.runtime.change_feed`."""

from datetime import timedelta

from tidegate.runtime.change_feed import ChangeFeed
from tidegate.storage.valkey import Unit, Valkey

_GAP = timedelta(milliseconds=2)
"""Somebody waits. Each batch of refreshes is told at once; this is for those who tell one by one."""


class News(ChangeFeed[str]):
    """Which subjects were refreshed, by their ids."""

    def __init__(self, valkey: Valkey, unit: Unit) -> None:
        super().__init__(valkey, unit.key("refreshed"), str, field=b"subjects", gap=_GAP)
