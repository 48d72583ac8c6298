"""Whose entries are dead letters, looked up without reading them all.

A stream only grows at its end, so each process remembers what it has read of it, and reads what came since: mostly
nothing. That a letter is there is asked again before it is told: it may have been replayed or discarded meanwhile.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from tidegate.primitives.stream.message import DeadLetter, Entry, to_dead_letter
from tidegate.storage.valkey import Key, Valkey
from tidegate.systems.campaigns.keys import campaign_keys

_MOST_CAMPAIGNS = 100
_SHORT_PAGE, _LONG_PAGE = 50, 500
_SPARE = 1000
"""So many letters that are gone may be remembered beside those that are there."""
_Id = tuple[int, int]


class _Whose(msgspec.Struct, frozen=True):
    """The part of an entry that is looked for."""

    user: str
    number: int


_decoder = msgspec.json.Decoder(_Whose)


@dataclass(slots=True)
class _Read:
    """What was read of one campaign's letters."""

    upto: _Id = (0, 0)
    letters: dict[tuple[str, int], _Id] = field(default_factory=dict[tuple[str, int], _Id])
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def take_in(self, found: list[Entry]) -> None:
        """The same again, or an answer that comes late, changes nothing."""
        for ident, fields in found:
            at = _id(ident)
            self.upto = max(self.upto, at)
            try:
                whose = _decoder.decode(fields.get(b"payload", b""))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            name = (whose.user, whose.number)
            self.letters[name] = max(at, self.letters.get(name, at))


class DeadUsers:
    """Finds the dead letter of a user, in any campaign."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._campaigns: OrderedDict[str, _Read] = OrderedDict()

    async def letter(self, campaign: str, user: str, number: int) -> DeadLetter | None:
        """The letter that the entry with this number became; None: there is none."""
        dead = campaign_keys(self._valkey, campaign)["dead"]
        count = await self._valkey.execute("XLEN", dead)
        if count == 0:
            self._campaigns.pop(campaign, None)
            return None
        read = self._of(campaign, count)
        if await self._read_on(dead, read, _SHORT_PAGE):
            async with read.reading:  # a long way: one of us goes it for all
                while await self._read_on(dead, read, _LONG_PAGE):
                    pass
        at = read.letters.get((user, number))
        if at is None:
            return None
        ident = f"{at[0]}-{at[1]}"
        found = await self._valkey.execute("XRANGE", dead, ident, ident)
        if found:
            return to_dead_letter(found[0])
        if read.letters.get((user, number)) == at:
            del read.letters[user, number]
        return None

    def _of(self, campaign: str, count: int) -> _Read:
        read = self._campaigns.get(campaign)
        if read is None or len(read.letters) > 2 * count + _SPARE:
            read = self._campaigns[campaign] = _Read()
        self._campaigns.move_to_end(campaign)
        if len(self._campaigns) > _MOST_CAMPAIGNS:
            self._campaigns.popitem(last=False)
        return read

    async def _read_on(self, dead: Key, read: _Read, limit: int) -> bool:
        """Whether there may be more."""
        start = f"({read.upto[0]}-{read.upto[1]}"
        found: list[Entry] = await self._valkey.execute("XRANGE", dead, start, "+", "COUNT", limit)
        read.take_in(found)
        return len(found) == limit


def _id(ident: bytes) -> _Id:
    ms, _, sequence = ident.partition(b"-")
    return int(ms), int(sequence)
