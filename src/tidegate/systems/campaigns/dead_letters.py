"""Dead letters of campaigns: entries that could not be decided. They are kept until they are replayed or discarded.

The share of the stock that such an entry has stays reserved after a replay, too. Only `discard` frees it.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from tidegate.core.clock import Clock
from tidegate.primitives.stream import DeadLetter, DeadLetters, StreamKeys
from tidegate.primitives.stream.message import id_batches, split_letter_id, to_dead_letter
from tidegate.storage.valkey import Valkey
from tidegate.system import DeadLetterStore, DeadLetterSummary
from tidegate.systems.campaigns import scripts
from tidegate.systems.campaigns.model import CampaignEntry
from tidegate.systems.campaigns.results import ResultFeed, entry_of
from tidegate.systems.campaigns.scripts import campaign_keys, campaigns_unit, remembered, stream_name


class CampaignDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter of a campaign."""

    id: str
    reason: str
    deliveries: int
    at: datetime
    entry: CampaignEntry | None
    """None if the message could not be read."""
    payload: str | None
    """The payload as received; None if there was none."""


class CampaignDeadLetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, oldest first."""

    letters: list[CampaignDeadLetter]
    next_after: str | None
    """`after` of the next page; None on the last page."""


class CampaignDeadLetters:
    """Lists, counts, replays and discards the dead letters of campaigns."""

    def __init__(self, valkey: Valkey, feed: ResultFeed, clock: Clock) -> None:
        self._valkey, self._feed, self._clock = valkey, feed, clock

    async def page(self, campaign: str, *, after: str | None = None, limit: int = 100) -> CampaignDeadLetterPage:
        """Return up to `limit` dead letters after the dead letter `after`, oldest first."""
        found = await self._letters(campaign).page(after=after, limit=limit)
        return CampaignDeadLetterPage(
            letters=[_letter_of(letter) for letter in found.letters], next_after=found.next_after
        )

    async def count(self, campaign: str) -> int:
        """Return the number of dead letters."""
        return await self._letters(campaign).count()

    async def ids(self, campaign: str) -> list[str]:
        """Return the ids of all present dead letters, oldest first; later ones are not included."""
        return await self._letters(campaign).ids()

    async def replay(self, campaign: str, letter_ids: Iterable[str]) -> int:
        """Move dead letters back to the stream as new messages; return how many. Unknown ids are skipped."""
        replayed = 0
        for batch in id_batches(letter_ids):
            entries = await self._entries(campaign, batch)
            keys, now_ms = campaign_keys(self._valkey, campaign), self._clock.pinned_ms
            replayed += await scripts.replay(self._valkey, campaign=campaign, ids=batch, now_ms=now_ms, **keys)
            self._notify_watchers(campaign, entries.values())
        return replayed

    async def discard(self, campaign: str, letter_ids: Iterable[str]) -> int:
        """Delete dead letters; return how many. Their share of the stock is free, and their users may enter again."""
        discarded = 0
        for batch in id_batches(letter_ids):
            entries = await self._entries(campaign, batch)
            letters = [(one, *_remembered_user(entries.get(one))) for one in batch]
            keys = campaign_keys(self._valkey, campaign)
            discarded += await scripts.discard(self._valkey, letters=letters, **keys)
            self._notify_watchers(campaign, entries.values())
        return discarded

    def _letters(self, campaign: str) -> DeadLetters:
        return DeadLetters(self._valkey, StreamKeys(campaigns_unit(self._valkey), stream_name(campaign)))

    async def _entries(self, campaign: str, ids: Iterable[str]) -> dict[str, CampaignEntry]:
        """Return the entries of these dead letters, as far as they can be read."""
        dead = campaign_keys(self._valkey, campaign)["dead"]
        replies = await self._valkey.pipeline([("XRANGE", dead, one, one) for one in ids])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        letters = [to_dead_letter(reply[0]) for reply in replies if reply]
        return {letter.id: entry for letter in letters if (entry := entry_of(letter)) is not None}

    def _notify_watchers(self, campaign: str, entries: Iterable[CampaignEntry]) -> None:
        self._feed.decided(campaign, [entry.user for entry in entries])


def dead_letter_store(
    letters: CampaignDeadLetters, count: Callable[[], Awaitable[Mapping[str, int]]]
) -> DeadLetterStore:
    """The dead letters of all campaigns, as operators group them. The campaign is part of their ids.

    `count` returns the number of dead letters of each campaign that has some.
    """

    async def page(after: str | None, limit: int) -> Sequence[DeadLetterSummary]:
        place, number = split_letter_id(after) if after else ("", None)
        found = list[DeadLetterSummary]()
        for campaign in sorted(each for each in await count() if each >= place):
            rest = limit - len(found)
            if rest > 0:
                known = await letters.page(campaign, after=number if campaign == place else None, limit=rest)
                found += [_summary(campaign, letter) for letter in known.letters]
        return found

    async def replay(ids: Sequence[str]) -> int:
        return sum([await letters.replay(campaign, numbers) for campaign, numbers in _by_campaign(ids).items()])

    async def discard(ids: Sequence[str]) -> int:
        return sum([await letters.discard(campaign, numbers) for campaign, numbers in _by_campaign(ids).items()])

    server = "the database or Valkey"
    return DeadLetterStore("campaigns", "campaigns", count, page, replay, discard, server=server)


def _summary(campaign: str, letter: CampaignDeadLetter) -> DeadLetterSummary:
    return DeadLetterSummary(f"{campaign}-{letter.id}", campaign, "entry", letter.reason, letter.at)


def _by_campaign(ids: Sequence[str]) -> Mapping[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    for campaign, number in map(split_letter_id, ids):
        found[campaign].append(number)
    return found


def _letter_of(letter: DeadLetter) -> CampaignDeadLetter:
    payload = letter.fields.get(b"payload")
    return CampaignDeadLetter(
        id=letter.id,
        reason=letter.reason,
        deliveries=letter.deliveries,
        at=letter.at,
        entry=entry_of(letter),
        payload=None if payload is None else payload.decode(errors="replace"),
    )


def _remembered_user(entry: CampaignEntry | None) -> tuple[str, str]:
    """Return the user, and what the server remembers of the user."""
    return ("", "") if entry is None else (entry.user, remembered(entry.number, entry.key))
