"""Dead letters of a stream: messages that failed permanently, to be inspected and then replayed or removed."""

from collections.abc import Iterable

from tidegate.core.arguments import require_at_most, require_positive
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.primitives.stream.message import (
    DeadLetter,
    DeadLetterPage,
    StreamKeys,
    id_batches,
    require_id,
    to_dead_letter,
)
from tidegate.storage.valkey import Key, Valkey, lua_script

_LARGEST_PAGE = 1000


@lua_script("replay.lua")
async def _replay(valkey: Valkey, *, stream: Key, dead: Key, ids: list[str]) -> int: ...


class DeadLetters:
    """The dead letters of one stream: kept until they are replayed, removed, or too old (`retention.dead_letters`)."""

    def __init__(self, valkey: Valkey, keys: StreamKeys) -> None:
        self._valkey, self._keys = valkey, keys

    async def count(self) -> int:
        """Number of dead letters."""
        return await self._valkey.execute("XLEN", self._keys.dead)

    async def page(self, *, after: str | None = None, limit: int = 100) -> DeadLetterPage:
        """The oldest `limit` dead letters, or those after the letter `after`."""
        require_positive("limit", limit)
        require_at_most("limit", limit, _LARGEST_PAGE)
        start = "-" if after is None else f"({require_id('after', after)}"
        entries = await self._valkey.execute("XRANGE", self._keys.dead, start, "+", "COUNT", limit)
        letters = [to_dead_letter(entry) for entry in entries]
        return DeadLetterPage(letters, letters[-1].id if len(letters) == limit else None)

    async def get(self, letter_id: str) -> DeadLetter:
        """One dead letter. Raises `NotFound`."""
        require_id("letter_id", letter_id)
        entries = await self._valkey.execute("XRANGE", self._keys.dead, letter_id, letter_id)
        if not entries:
            raise NotFound("dead letter", letter_id)
        return to_dead_letter(entries[0])

    async def ids(self) -> list[str]:
        """Ids of all dead letters, the oldest first."""
        found = list[str]()
        after: str | None = None
        while True:
            page = await self.page(after=after, limit=_LARGEST_PAGE)
            found += [letter.id for letter in page.letters]
            after = page.next_after
            if after is None:
                return found

    async def replay(self, letter_ids: Iterable[str]) -> int:
        """Turn dead letters into new messages, with a new count of deliveries. Returns how many; each once."""
        keys = self._keys
        batches = id_batches(letter_ids)
        return sum([await _replay(self._valkey, stream=keys.stream, dead=keys.dead, ids=batch) for batch in batches])

    async def remove(self, letter_ids: Iterable[str]) -> int:
        """Delete dead letters. Returns how many there were."""
        return sum([await self._valkey.execute("XDEL", self._keys.dead, *batch) for batch in id_batches(letter_ids)])


def split_letter_id(letter_id: str) -> tuple[str, str]:
    """The place of a dead letter among several streams, and its id there: `alarms-1700-0` is `1700-0` in `alarms`.

    Raises `InvalidArgument`.
    """
    place, _, number = letter_id.rpartition("-")
    place, _, at_ms = place.rpartition("-")
    if not place:
        raise InvalidArgument("after", letter_id, "is not the id of such a dead letter")
    return place, require_id("after", f"{at_ms}-{number}")
