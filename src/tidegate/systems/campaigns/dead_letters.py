"""Entries that nobody could decide: to be looked at, then replayed or discarded by somebody who knows why."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from tidegate.core.clock import Clock
from tidegate.primitives.stream import DeadLetter, DeadLetters, StreamKeys
from tidegate.primitives.stream.batches import id_batches
from tidegate.primitives.stream.message import to_dead_letter
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import scripts
from tidegate.systems.campaigns.campaign import Entry
from tidegate.systems.campaigns.keys import campaign_keys, campaigns_unit, remembered, stream_name
from tidegate.systems.campaigns.result_feed import ResultFeed
from tidegate.systems.campaigns.results import entry_of


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter of a campaign."""

    id: str
    reason: str
    deliveries: int
    at: datetime
    entry: Entry | None
    """None where the message could not be read."""
    payload: str | None
    """As it was; None where there was none."""


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some dead letters, the oldest first."""

    letters: list[Letter]
    next_after: str | None
    """Pass this as `after` for the next page; None when there is none."""


class CampaignLetters:
    """The dead letters of campaigns. A letter keeps its place of the stock until it is discarded."""

    def __init__(self, valkey: Valkey, feed: ResultFeed, clock: Clock) -> None:
        self._valkey, self._feed, self._clock = valkey, feed, clock

    async def page(self, campaign: str, *, after: str | None = None, limit: int = 100) -> LetterPage:
        """The oldest `limit` of those buried after the letter `after`, or of all."""
        found = await self._letters(campaign).page(after=after, limit=limit)
        return LetterPage(letters=[_told(letter) for letter in found.letters], next_after=found.next_after)

    async def count(self, campaign: str) -> int:
        """How many there are."""
        return await self._letters(campaign).count()

    async def ids(self, campaign: str) -> list[str]:
        """All that are there now, the oldest first; letters that come meanwhile, or come back, are not among them."""
        return await self._letters(campaign).ids()

    async def replay(self, campaign: str, letter_ids: Iterable[str]) -> int:
        """Make them messages again, as if they were new; how many there were. Each is replayed once."""
        replayed = 0
        for batch in id_batches(letter_ids):
            entries = await self._entries(campaign, batch)
            keys, now_ms = campaign_keys(self._valkey, campaign), self._clock.pinned_ms
            replayed += await scripts.replay(self._valkey, campaign=campaign, ids=batch, now_ms=now_ms, **keys)
            self._tell(campaign, entries.values())
        return replayed

    async def discard(self, campaign: str, letter_ids: Iterable[str]) -> int:
        """Give them up for good; how many there were. Their places are free, and their users may enter again."""
        discarded = 0
        for batch in id_batches(letter_ids):
            entries = await self._entries(campaign, batch)
            letters = [(one, *_known(entries.get(one))) for one in batch]
            keys = campaign_keys(self._valkey, campaign)
            discarded += await scripts.discard(self._valkey, letters=letters, **keys)
            self._tell(campaign, entries.values())
        return discarded

    def _letters(self, campaign: str) -> DeadLetters:
        return DeadLetters(self._valkey, StreamKeys(campaigns_unit(self._valkey), stream_name(campaign)))

    async def _entries(self, campaign: str, ids: Iterable[str]) -> dict[str, Entry]:
        """What these are about, where it can be read."""
        dead = campaign_keys(self._valkey, campaign)["dead"]
        replies = await self._valkey.pipeline([("XRANGE", dead, one, one) for one in ids])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        letters = [to_dead_letter(reply[0]) for reply in replies if reply]
        return {letter.id: entry for letter in letters if (entry := entry_of(letter)) is not None}

    def _tell(self, campaign: str, entries: Iterable[Entry]) -> None:
        self._feed.decided(campaign, [entry.user for entry in entries])


def _told(letter: DeadLetter) -> Letter:
    payload = letter.fields.get(b"payload")
    return Letter(
        id=letter.id,
        reason=letter.reason,
        deliveries=letter.deliveries,
        at=letter.at,
        entry=entry_of(letter),
        payload=None if payload is None else payload.decode(errors="replace"),
    )


def _known(entry: Entry | None) -> tuple[str, str]:
    """As the door remembers whoever sent it."""
    return ("", "") if entry is None else (entry.user, remembered(entry.number, entry.key))
