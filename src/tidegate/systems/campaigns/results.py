"""The state of users' entries. Decisions are in SQL, accepted entries in Valkey, and failed ones are dead letters.

`ResultFeed` notifies watchers in all processes. `DeadLetterIndex` finds the dead letter of a user without reading all
of them: a stream grows only at its end, so each process remembers what it has read, and reads what was added. A dead
letter that is found is read again, since it may have been replayed or discarded.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from tidegate.primitives.stream.message import DeadLetter, Entry, to_dead_letter
from tidegate.runtime.change_feed import ChangeFeed, Watch
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Key, Valkey
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.model import (
    CampaignEntry,
    DecidedEntry,
    EntryResult,
    EntryState,
    EntryVerdict,
    require_campaign,
    require_user,
)
from tidegate.systems.campaigns.scripts import campaign_keys, result_feed_key

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


_MOST_CAMPAIGNS = 100
_SHORT_PAGE, _LONG_PAGE = 50, 500
_SPARE = 1000
"""Number of deleted dead letters that may be remembered beside the present ones."""
_Id = tuple[int, int]


class _EntryKey(msgspec.Struct, frozen=True):
    """The fields of an entry by which its dead letter is found."""

    user: str
    number: int


_key_decoder = msgspec.json.Decoder(_EntryKey)


@dataclass(slots=True)
class _IndexedCampaign:
    """What was read of the dead letters of one campaign."""

    upto: _Id = (0, 0)
    letters: dict[tuple[str, int], _Id] = field(default_factory=dict[tuple[str, int], _Id])
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add(self, found: list[Entry]) -> None:
        """Add dead letters to the index; repeated or late pages change nothing."""
        for ident, fields in found:
            at = _stream_id(ident)
            # Also for a letter that cannot be decoded, so that it is not read again and again.
            self.upto = max(self.upto, at)
            try:
                payload = _key_decoder.decode(fields.get(b"payload", b""))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            name = (payload.user, payload.number)
            # A replayed entry that failed again has a later letter.
            self.letters[name] = max(at, self.letters.get(name, at))


class DeadLetterIndex:
    """Finds the dead letter of an entry, by campaign, user and the number of the entry."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._campaigns: OrderedDict[str, _IndexedCampaign] = OrderedDict()

    async def letter(self, campaign: str, user: str, number: int) -> DeadLetter | None:
        """Return the dead letter of the entry with this number; None if there is none."""
        dead = campaign_keys(self._valkey, campaign)["dead"]
        count = await self._valkey.execute("XLEN", dead)
        if count == 0:
            self._campaigns.pop(campaign, None)
            return None
        read = self._of(campaign, count)
        # Usually nothing or little was added since the last question: a short page, without a lock.
        if await self._read_on(dead, read, _SHORT_PAGE):
            async with read.reading:  # many pages: one caller reads them for all
                while await self._read_on(dead, read, _LONG_PAGE):
                    pass
        at = read.letters.get((user, number))
        if at is None:
            return None
        ident = f"{at[0]}-{at[1]}"
        found = await self._valkey.execute("XRANGE", dead, ident, ident)
        if found:
            return to_dead_letter(found[0])
        # During the read, another caller may have indexed a newer letter of this entry.
        if read.letters.get((user, number)) == at:
            del read.letters[user, number]
        return None

    def _of(self, campaign: str, count: int) -> _IndexedCampaign:
        read = self._campaigns.get(campaign)
        # Most indexed letters were deleted: begin again instead of keeping them in memory.
        if read is None or len(read.letters) > 2 * count + _SPARE:
            read = self._campaigns[campaign] = _IndexedCampaign()
        self._campaigns.move_to_end(campaign)
        if len(self._campaigns) > _MOST_CAMPAIGNS:
            self._campaigns.popitem(last=False)
        return read

    async def _read_on(self, dead: Key, read: _IndexedCampaign, limit: int) -> bool:
        """Read a page; return whether there may be more."""
        start = f"({read.upto[0]}-{read.upto[1]}"
        found: list[Entry] = await self._valkey.execute("XRANGE", dead, start, "+", "COUNT", limit)
        read.add(found)
        return len(found) == limit


def _stream_id(ident: bytes) -> _Id:
    ms, _, sequence = ident.partition(b"-")
    return int(ms), int(sequence)


_entry_decoder = msgspec.json.Decoder(CampaignEntry)


class Results:
    """Looks up the state of a user's entry, and notifies watchers of changes."""

    def __init__(self, valkey: Valkey, database: Database, feed: ResultFeed) -> None:
        self._valkey, self._database, self._feed = valkey, database, feed
        self._dead = DeadLetterIndex(valkey)

    async def of(self, campaign: str, user: str) -> EntryResult:
        """Return the state of a user's entry. Raises `NotFound` if the campaign does not exist."""
        require_campaign(campaign)
        user = require_user(user)
        row = await self._database.read(_row, campaign, user)
        if row is not None and row.outcome.verdict is EntryVerdict.ISSUED:
            return _result_of(row)  # issued entries are final, whatever the server has
        # Refused or sold out entries are not final: the user may have entered again, which only the server knows.
        number = await self._number(campaign, user)
        if number is None:
            # The server does not remember the user, or not any more: the state in SQL is final.
            row = await self._database.read(_row, campaign, user)
            return (
                EntryResult(campaign=campaign, user=user, state=EntryState.UNKNOWN) if row is None else _result_of(row)
            )
        if row is not None and row.number == number:
            return _result_of(row)  # decided; the server is updated within moments
        letter = await self._dead.letter(campaign, user, number)
        if letter is None:
            return EntryResult(campaign=campaign, user=user, state=EntryState.PENDING, number=number)
        return EntryResult(
            campaign=campaign,
            user=user,
            state=EntryState.FAILED,
            number=number,
            reason="it could not be processed; an operator has to replay or discard it",
            decided_at=letter.at,
        )

    def watch(self, campaign: str, user: str) -> AbstractAsyncContextManager[Watch]:
        """Notify on every change of this entry, for the duration of the block."""
        return self._feed.watch([name_of(require_campaign(campaign), require_user(user))])

    async def _number(self, campaign: str, user: str) -> int | None:
        """Return the number that the server gave to the user's entry."""
        remembered = await self._valkey.execute("HGET", campaign_keys(self._valkey, campaign)["entries"], user)
        return None if remembered is None else int(remembered.partition(b"|")[0])


def entry_of(letter: DeadLetter) -> CampaignEntry | None:
    """Return the entry of a dead letter; None if it cannot be read."""
    try:
        return _entry_decoder.decode(letter.fields.get(b"payload", b""))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _row(tx: Transaction, campaign: str, user: str) -> DecidedEntry | None:
    found = campaign_store.decided(tx, campaign, user)
    if found is None:
        campaign_store.get(tx, campaign)  # raises NotFound if the campaign does not exist
    return found


def _result_of(row: DecidedEntry) -> EntryResult:
    return EntryResult(
        campaign=row.campaign,
        user=row.user,
        state=EntryState(row.outcome.verdict.value),
        number=row.number,
        code=row.outcome.code,
        points=row.outcome.points,
        reason=row.outcome.reason,
        decided_at=row.decided_at,
    )
