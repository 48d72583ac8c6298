"""Keys of a stream, its messages, dead letters and status with their encoding, and the list of dead letters.

Dead letters are messages that failed permanently, to be inspected and then replayed or removed. Commands are split into
batches of bounded size, because a long script blocks the server.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from tidegate.core.arguments import require_at_most, require_name, require_positive
from tidegate.core.clock import from_ms
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script
from tidegate.storage.valkey.scripts import text_header


class StreamKeys:
    """Keys of one stream, all in one unit, because messages move between them in one atomic step."""

    def __init__(self, unit: Unit, name: str) -> None:
        self._unit, self._name = unit, require_name("stream", name)
        self.stream: Key = unit.key(name)
        """stream: the messages, waiting or pending."""
        self.dead: Key = unit.key(f"{name}:dead")
        """stream: the dead letters."""

    def added(self, token: str) -> Key:
        """string, expires: this batch has been added."""
        return self._unit.key(f"{self._name}:added:{token}")


T = TypeVar("T")

BATCH = 100
"""Messages per script."""

_ID = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)


def in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split items into batches of at most `BATCH`, in order."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def id_batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """Split ids into batches of at most `BATCH`, without duplicates. Raises `InvalidArgument` for invalid ids."""
    unique = list(dict.fromkeys(ids))
    for one in unique:
        require_id("id", one)
    for batch in in_batches(unique):
        yield list(batch)


def require_id(name: str, value: str) -> str:
    """Require an id of a stream entry: milliseconds, a hyphen, a number."""
    if not _ID.fullmatch(value):
        raise InvalidArgument(name, value, "is not the id of a message")
    return value


DELIVERIES = b"deliveries"
"""Field with the number of deliveries; absent at the first one."""
DEAD_PREFIX = b"dead."
"""Prefix of the fields that are added to a dead letter."""

_MOST_FIELDS = 500


class Message(NamedTuple):
    """A message as a consumer received it."""

    id: str
    fields: dict[bytes, bytes]
    deliveries: int
    """Delivery number, starting at 1; greater if an earlier consumer released the message, stalled or died."""


class DeadLetter(NamedTuple):
    """A message that failed permanently, and the reason."""

    id: str
    message_id: str
    fields: dict[bytes, bytes]
    deliveries: int
    reason: str
    at: datetime


class DeadLetterPage(NamedTuple):
    """A page of dead letters, the oldest first."""

    letters: list[DeadLetter]
    next_after: str | None
    """Value of `after` for the next page; None if there is none."""


class ConsumerStatus(NamedTuple):
    """Status of one consumer of the group."""

    name: str
    pending: int
    idle_ms: int
    """Time since its last read."""


class StreamStatus(NamedTuple):
    """Status of a stream at one point in time."""

    depth: int
    """Messages that are not acknowledged."""
    pending: int
    """Those of them that were delivered to a consumer."""
    lag: int
    """Those of them that were not delivered yet."""
    dead: int
    """Dead letters; not part of `depth`."""
    consumers: list[ConsumerStatus]


Entry = tuple[bytes, dict[bytes, bytes]]
"""An id with its fields, as the server sends it."""


def to_message(entry: Entry) -> Message:
    """Convert an entry of the server; the delivery count is removed from the fields."""
    entry_id, fields = entry
    return Message(entry_id.decode(), fields, int(fields.pop(DELIVERIES, 1)))


def to_dead_letter(entry: Entry) -> DeadLetter:
    """Convert an entry of the server; fields of the message are separated from those of the dead letter."""
    entry_id, fields = entry
    added = {name: fields.pop(name) for name in list(fields) if name.startswith(DEAD_PREFIX)}
    return DeadLetter(
        id=entry_id.decode(),
        message_id=added[b"dead.message"].decode(),
        fields=fields,
        deliveries=int(added[b"dead.deliveries"]),
        reason=added[b"dead.reason"].decode(errors="replace"),
        at=from_ms(int(added[b"dead.at_ms"])),
    )


def pack_messages(messages: Sequence[Mapping[bytes, bytes]]) -> msgspec.Raw:
    """Encode a batch in msgpack, with every name and value as a string."""
    parts = [_array(len(messages))]
    for fields in messages:
        _check(fields)
        parts.append(_array(2 * len(fields)))
        for name, value in fields.items():
            parts += (text_header(len(name)), name, text_header(len(value)), value)
    return msgspec.Raw(b"".join(parts))


def _check(fields: Mapping[bytes, bytes]) -> None:
    if not fields:
        raise InvalidArgument("message", fields, "must have at least one field")
    require_at_most("number of fields", len(fields), _MOST_FIELDS)
    for name, value in fields.items():
        _check_bytes("field name", name)
        _check_bytes(f"field {name!r}", value)
        if name == DELIVERIES or name.startswith(DEAD_PREFIX):
            raise InvalidArgument("field", name, "is a name the stream uses itself")


def _check_bytes(what: str, value: Any) -> None:
    if not isinstance(value, bytes):
        raise InvalidArgument(what, type(value).__name__, "must be bytes")


def _array(length: int) -> bytes:
    # The form of msgpack with a length of 32 bits, which fits every array.
    return b"\xdd" + length.to_bytes(4)


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
