"""Tells watchers that entries were decided, in whatever process that was done: see `tidegate.runtime.change_feed`."""

from collections.abc import Iterable
from datetime import timedelta

from tidegate.runtime.change_feed import ChangeFeed
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.keys import result_feed_key

_GAP = timedelta(milliseconds=10)
"""Results of so long are told together: at thousands of entries per second, few commands; to a person, at once."""


class ResultFeed(ChangeFeed[str]):
    """Whose entries were decided."""

    def __init__(self, valkey: Valkey) -> None:
        super().__init__(valkey, result_feed_key(valkey), str, field=b"entries", gap=_GAP)

    def decided(self, campaign: str, users: Iterable[str]) -> None:
        """Entries of these users were decided; returns at once."""
        self.moved([name_of(campaign, user) for user in users])


def name_of(campaign: str, user: str) -> str:
    """What is watched: an id has no slash in it, so no two entries have one name."""
    return f"{campaign}/{user}"
