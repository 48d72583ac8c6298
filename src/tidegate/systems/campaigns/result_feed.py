"""Change feed of results: notifies watchers in all processes; see `tidegate.runtime.change_feed`."""

from collections.abc import Iterable
from datetime import timedelta

from tidegate.runtime.change_feed import ChangeFeed
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.keys import result_feed_key

_GAP = timedelta(milliseconds=10)
"""Results of this interval are published together, which keeps the number of commands small."""


class ResultFeed(ChangeFeed[str]):
    """Publishes which users of which campaign have a new result."""

    def __init__(self, valkey: Valkey) -> None:
        super().__init__(valkey, result_feed_key(valkey), str, field=b"entries", gap=_GAP)

    def decided(self, campaign: str, users: Iterable[str]) -> None:
        """Publish that these users have a new result; returns at once."""
        self.moved([name_of(campaign, user) for user in users])


def name_of(campaign: str, user: str) -> str:
    """Return the name of an entry in the feed; unique, since a campaign id contains no slash."""
    return f"{campaign}/{user}"
