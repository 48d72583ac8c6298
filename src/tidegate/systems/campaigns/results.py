"""What became of entries: SQL says what was decided, the door who is in line, the dead letters what went wrong."""

from contextlib import AbstractAsyncContextManager

import msgspec

from tidegate.primitives.stream.message import DeadLetter
from tidegate.runtime.change_feed import Watch
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import records
from tidegate.systems.campaigns.campaign import (
    Decided,
    Entry,
    Result,
    ResultState,
    Verdict,
    require_campaign,
    require_user,
)
from tidegate.systems.campaigns.dead_users import DeadUsers
from tidegate.systems.campaigns.keys import campaign_keys
from tidegate.systems.campaigns.result_feed import ResultFeed, name_of

_decoder = msgspec.json.Decoder(Entry)


class Results:
    """Looks up what became of one user's entry, and tells when that changes."""

    def __init__(self, valkey: Valkey, database: Database, feed: ResultFeed) -> None:
        self._valkey, self._database, self._feed = valkey, database, feed
        self._dead = DeadUsers(valkey)

    async def of(self, campaign: str, user: str) -> Result:
        """How far a user's entry is; raise `NotFound` where there is no such campaign."""
        require_campaign(campaign)
        user = require_user(user)
        row = await self._database.read(_row, campaign, user)
        if row is not None and row.outcome.verdict is Verdict.ISSUED:
            return _told(row)  # once and for ever, whatever the server says
        number = await self._number(campaign, user)
        if number is None:
            # He left the door's memory since we looked, or was never in it: what SQL says now is how it is.
            row = await self._database.read(_row, campaign, user)
            return Result(campaign=campaign, user=user, state=ResultState.UNKNOWN) if row is None else _told(row)
        if row is not None and row.number == number:
            return _told(row)  # decided, and the door will hear of it in a moment
        letter = await self._dead.letter(campaign, user, number)
        if letter is None:
            return Result(campaign=campaign, user=user, state=ResultState.PENDING, number=number)
        return Result(
            campaign=campaign,
            user=user,
            state=ResultState.FAILED,
            number=number,
            reason="it could not be processed and was put aside; somebody will look at it",
            decided_at=letter.at,
        )

    def watch(self, campaign: str, user: str) -> AbstractAsyncContextManager[Watch]:
        """Be woken whenever something became of this entry, for the length of a block."""
        return self._feed.watch([name_of(require_campaign(campaign), require_user(user))])

    async def _number(self, campaign: str, user: str) -> int | None:
        """With which the door let the user in."""
        remembered = await self._valkey.execute("HGET", campaign_keys(self._valkey, campaign)["entries"], user)
        return None if remembered is None else int(remembered.partition(b"|")[0])


def entry_of(letter: DeadLetter) -> Entry | None:
    """What the letter was about; None where that cannot be read."""
    try:
        return _decoder.decode(letter.fields.get(b"payload", b""))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _row(tx: Transaction, campaign: str, user: str) -> Decided | None:
    found = records.decided(tx, campaign, user)
    if found is None:
        records.get(tx, campaign)  # or there is no such campaign
    return found


def _told(row: Decided) -> Result:
    return Result(
        campaign=row.campaign,
        user=row.user,
        state=ResultState(row.outcome.verdict.value),
        number=row.number,
        code=row.outcome.code,
        points=row.outcome.points,
        reason=row.outcome.reason,
        decided_at=row.decided_at,
    )
