"""`/v1/dead-letters`: what failed for good, wherever it did, until somebody replays or removes it.

There are two kinds. An *event* could not be handled, and waits in SQL; a *message* of a stream was with too many
workers, and waits on the server. Both are in one list. The id says where: `outbox-17`, `alarms-1700000000000-0`.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import NotFound
from tidegate.core.telemetry.redaction import redact
from tidegate.engine.api.run_details import Limit
from tidegate.engine.collection import Collection
from tidegate.http.dispatch import Given
from tidegate.http.problems import ProblemType, Trouble
from tidegate.http.routes import route
from tidegate.primitives.stream.message import DeadLetter as DeadMessage
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import StoredEvent

TAG = "dead letters"
_OUTBOX = "outbox"

_EVENT_ID, _MESSAGE_ID = r"outbox-[1-9][0-9]{0,17}", r"([a-z][a-z0-9_]{0,39}[.])?(jobs|alarms)-[0-9]{1,18}-[0-9]{1,18}"
LetterId = Annotated[str, Meta(pattern=rf"^({_EVENT_ID}|{_MESSAGE_ID})$", max_length=80)]


class LetterFilter(Given, frozen=True, kw_only=True):
    """Which letters, and how many."""

    kind: Literal["event", "message"] | None = None
    after: LetterId | None = None
    """Only letters behind this one."""
    limit: Limit = 100


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Something that failed for good, and why."""

    id: str
    kind: Literal["event", "message"]
    name: str
    """Which kind of event, or which stream."""
    key: str
    """Whom the event was about, or the message's own id."""
    attempts: int
    reason: str
    at: datetime
    """When the event happened, or the message was buried."""
    contents: Any
    """What it carries; secrets are hidden."""


class LetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some letters: events first, then messages stream by stream, the oldest first."""

    letters: list[DeadLetter]
    next: str | None
    """The address of the next page; null where there is none."""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a letter."""

    id: str
    outcome: Literal["replayed", "removed"]


class LetterKind(Given, frozen=True, kw_only=True):
    """Which letters."""

    kind: Literal["event", "message"] | None = None
    """Null: both."""


class ReplayedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """How many letters were given a fresh start."""

    replayed: int


class DeadLetters:
    """The handlers."""

    def __init__(self, collection: Collection) -> None:
        parts = collection.parts
        self._database = parts.database
        self._streams = {stream.name: stream.dead_letters for stream in collection.streams}

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with dead letters."""
        return [
            route("GET", "/v1/dead-letters", self.list_dead_letters, TAG),
            route("POST", "/v1/dead-letters/replay", self.replay_dead_letters, TAG),
            route("POST", "/v1/dead-letters/{letter_id}/replay", self.replay_dead_letter, TAG),
            route(
                "DELETE",
                "/v1/dead-letters/{letter_id}",
                self.remove_dead_letter,
                TAG,
                problems=(ProblemType.CONFLICT,),
            ),
        ]

    async def list_dead_letters(self, query: LetterFilter) -> LetterPage:
        """List what failed for good: events that no handler took, and messages that no worker could end."""
        letters = await self._from(query.after, query.limit + 1, query.kind)
        shown, more = letters[: query.limit], letters[query.limit :]
        return LetterPage(letters=shown, next=_next(query, shown[-1].id) if more else None)

    async def replay_dead_letters(self, body: LetterKind = LetterKind()) -> ReplayedLetters:  # noqa: B008 - it is frozen
        """Give all letters a fresh start, or all of one kind. Those that fail meanwhile are for the next time."""
        replayed = 0
        if body.kind != "message":
            replayed += await self._database.transaction(_replay_all)
        if body.kind != "event":
            for stream in self._streams.values():
                replayed += await stream.replay(await stream.ids())
        return ReplayedLetters(replayed=replayed)

    async def replay_dead_letter(self, letter_id: LetterId) -> Settled:
        """Give a letter a fresh start: the event is delivered again, the message goes back into its stream."""
        place, number = _parse(letter_id)
        if place == _OUTBOX:
            replayed = await self._database.transaction(partial(_replay, number=int(number)))
        elif place in self._streams:
            replayed = await self._streams[place].replay([number])
        else:
            replayed = 0
        if not replayed:
            raise NotFound("dead letter", letter_id)
        return Settled(id=letter_id, outcome="replayed")

    async def remove_dead_letter(self, letter_id: LetterId) -> Settled:
        """Give a message up for good. An event is refused with 409: its run would stay unfinished for ever."""
        place, number = _parse(letter_id)
        if place == _OUTBOX and await self._database.read(partial(_exists, number=int(number))):
            raise Trouble(ProblemType.CONFLICT, "an event can be replayed, and not removed")
        if place not in self._streams or not await self._streams[place].remove([number]):
            raise NotFound("dead letter", letter_id)
        return Settled(id=letter_id, outcome="removed")

    async def _from(self, after: str | None, limit: int, kind: str | None) -> list[DeadLetter]:
        """The letters behind one of them, from one place after the other."""
        place, number = _parse(after) if after else ("", "")
        places = [_OUTBOX, *self._streams]
        found: list[DeadLetter] = []
        for each in places[places.index(place) if place in places else 0 :]:
            if kind in (None, "event" if each == _OUTBOX else "message") and len(found) < limit:
                found += await self._at(each, number if each == place else None, limit - len(found))
        return found

    async def _at(self, place: str, after: str | None, limit: int) -> list[DeadLetter]:
        if place == _OUTBOX:
            rows = await self._database.read(partial(_events, after=int(after or 0), limit=limit))
            return [_event(row) for row in rows]
        page = await self._streams[place].page(after=after, limit=limit)
        return [_message(place, letter) for letter in page.letters]


def _parse(letter_id: str) -> tuple[str, str]:
    """The place, and the number in it."""
    place, _, number = letter_id.partition("-")
    return place, number


def _event(row: StoredEvent) -> DeadLetter:
    try:
        contents: Any = msgspec.json.decode(row.payload_json)
    except msgspec.DecodeError:
        contents = None
    return DeadLetter(
        id=f"{_OUTBOX}-{row.id}",
        kind="event",
        name=row.kind,
        key=row.key,
        attempts=row.attempts,
        reason=row.last_error or "",
        at=row.created_at,
        contents=redact(contents),
    )


def _message(place: str, letter: DeadMessage) -> DeadLetter:
    return DeadLetter(
        id=f"{place}-{letter.id}",
        kind="message",
        name=place,
        key=letter.message_id,
        attempts=letter.deliveries,
        reason=letter.reason,
        at=letter.at,
        contents=redact({_text(name): _text(value) for name, value in letter.fields.items()}),
    )


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _events(tx: Transaction, *, after: int, limit: int) -> list[StoredEvent]:
    return outbox.dead_letters(tx, after=after, limit=limit)


def _replay(tx: Transaction, *, number: int) -> int:
    return outbox.replay(tx, ids=[number])


def _replay_all(tx: Transaction) -> int:
    return outbox.replay(tx, everything=True)


def _exists(tx: Transaction, *, number: int) -> bool:
    found = outbox.dead_letters(tx, after=number - 1, limit=1)
    return bool(found) and found[0].id == number


def _next(query: LetterFilter, after: str) -> str:
    kind = [("kind", query.kind)] if query.kind else []
    return f"/v1/dead-letters?{urlencode([*kind, ('after', after), ('limit', query.limit)])}"
