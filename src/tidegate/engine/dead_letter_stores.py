"""Dead letters of the engine: events of the outbox in SQL, and messages of streams in Valkey."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from tidegate.core.errors import InvalidArgument
from tidegate.primitives.stream import Stream
from tidegate.primitives.stream.message import split_letter_id
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.system import DeadLetterStore, DeadLetterSummary

_LONGEST_NUMBER = 18


def event_store(database: Database) -> DeadLetterStore:
    """Events that their handlers failed to process. They cannot be discarded: their runs would never be completed."""

    async def count() -> Mapping[str, int]:
        return {"": (await database.read(outbox.depth)).dead}

    async def page(after: str | None, limit: int) -> Sequence[DeadLetterSummary]:
        rows = await database.read(partial(_summaries, after=row_number(after), limit=limit))
        return [DeadLetterSummary(str(row.id), "", row.kind, row.last_error or "", row.created_at) for row in rows]

    async def replay(ids: Sequence[str]) -> int:
        return await database.transaction(partial(_replay, ids=[int(each) for each in ids]))

    return DeadLetterStore("events", "events", count, page, replay)


def message_store(streams: Sequence[Stream]) -> DeadLetterStore:
    """Messages that no worker could process. The name of the stream is part of their ids."""
    dead = {stream.name: stream.dead_letters for stream in streams}

    async def count() -> Mapping[str, int]:
        return {name: await each.count() for name, each in dead.items()}

    async def page(after: str | None, limit: int) -> Sequence[DeadLetterSummary]:
        place, number = split_letter_id(after) if after else ("", None)
        names, found = list(dead), list[DeadLetterSummary]()
        for name in names[names.index(place) if place in names else 0 :]:
            rest = limit - len(found)
            if rest > 0:
                letters = (await dead[name].page(after=number if name == place else None, limit=rest)).letters
                found += [DeadLetterSummary(f"{name}-{one.id}", name, "message", one.reason, one.at) for one in letters]
        return found

    async def replay(ids: Sequence[str]) -> int:
        return sum([await dead[name].replay(numbers) for name, numbers in _by_stream(ids).items() if name in dead])

    async def discard(ids: Sequence[str]) -> int:
        return sum([await dead[name].remove(numbers) for name, numbers in _by_stream(ids).items() if name in dead])

    return DeadLetterStore("messages", "messages", count, page, replay, discard, server="Valkey")


def row_number(letter_id: str | None) -> int:
    """The number of a row from the id of a dead letter; 0 for none. Raises `InvalidArgument`."""
    if letter_id is None:
        return 0
    if not (letter_id.isascii() and letter_id.isdigit() and len(letter_id) <= _LONGEST_NUMBER):
        raise InvalidArgument("after", letter_id, "is not the id of such a dead letter")
    return int(letter_id)


def _by_stream(ids: Sequence[str]) -> Mapping[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    for name, number in map(split_letter_id, ids):
        found[name].append(number)
    return found


def _summaries(tx: Transaction, *, after: int, limit: int) -> list[outbox.DeadEvent]:
    return outbox.dead_summaries(tx, after=after, limit=limit)


def _replay(tx: Transaction, *, ids: Sequence[int]) -> int:
    return outbox.replay(tx, ids=ids)
