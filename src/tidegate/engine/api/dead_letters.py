"""`/v1/dead-letters`: events and messages that failed permanently; they are kept until they are replayed or removed.

There are two kinds. An *event* is an outbox row that its handler failed to process; it is stored in SQL. A *message* is
a stream entry that exceeded its number of deliveries; it is stored in Valkey. One list contains both. The prefix of the
id names the origin: `outbox-17`, `alarms-1700000000000-0`.
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
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.primitives.stream.message import DeadLetter as DeadMessage
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import StoredEvent

TAG = "dead letters"
_OUTBOX = "outbox"

_EVENT_ID, _MESSAGE_ID = r"outbox-[1-9][0-9]{0,17}", r"([a-z][a-z0-9_]{0,39}[.])?(jobs|alarms)-[0-9]{1,18}-[0-9]{1,18}"
LetterId = Annotated[str, Meta(pattern=rf"^({_EVENT_ID}|{_MESSAGE_ID})$", max_length=80)]


class DeadLetterFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    kind: Literal["event", "message"] | None = None
    after: LetterId | None = None
    """Only dead letters after this id."""
    limit: Limit = 100


class DeadLetterDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An event or message that failed permanently, with the reason."""

    id: str
    kind: Literal["event", "message"]
    name: str
    """The kind of the event, or the name of the stream."""
    key: str
    """The key of the event, such as a run id, or the id of the message."""
    attempts: int
    reason: str
    at: datetime
    """When the event was recorded, or when the message became a dead letter."""
    contents: Any
    """The payload. Secrets are redacted."""


class DeadLetterList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters: events first, then messages by stream; oldest first."""

    letters: list[DeadLetterDetails]
    next: str | None
    """URL of the next page; null on the last page."""


class SettledDeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one dead letter."""

    id: str
    outcome: Literal["replayed", "removed"]


class ReplayRequest(RequestInput, frozen=True, kw_only=True):
    """The kind of dead letters to replay."""

    kind: Literal["event", "message"] | None = None
    """Null selects both kinds."""


class ReplayedDeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """The number of dead letters that were replayed."""

    replayed: int


class DeadLetterRoutes:
    """The handlers of the routes under `/v1/dead-letters`."""

    def __init__(self, collection: Collection) -> None:
        parts = collection.parts
        self._database = parts.database
        self._streams = {stream.name: stream.dead_letters for stream in collection.streams}

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of dead letters."""
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

    async def list_dead_letters(self, query: DeadLetterFilter) -> DeadLetterList:
        """List dead letters: events that failed in their handlers, and messages that no worker could process."""
        letters = await self._from(query.after, query.limit + 1, query.kind)
        shown, more = letters[: query.limit], letters[query.limit :]
        return DeadLetterList(letters=shown, next=_next(query, shown[-1].id) if more else None)

    async def replay_dead_letters(self, body: ReplayRequest = ReplayRequest()) -> ReplayedDeadLetters:  # noqa: B008 - it is frozen
        """Replay all dead letters, or all of one kind. Those that are added during the request are not included."""
        replayed = 0
        if body.kind != "message":
            replayed += await self._database.transaction(_replay_all)
        if body.kind != "event":
            for stream in self._streams.values():
                replayed += await stream.replay(await stream.ids())
        return ReplayedDeadLetters(replayed=replayed)

    async def replay_dead_letter(self, letter_id: LetterId) -> SettledDeadLetter:
        """Replay one dead letter: an event is delivered again, a message is added to its stream again."""
        place, number = _parse(letter_id)
        if place == _OUTBOX:
            replayed = await self._database.transaction(partial(_replay, number=int(number)))
        elif place in self._streams:
            replayed = await self._streams[place].replay([number])
        else:
            replayed = 0
        if not replayed:
            raise NotFound("dead letter", letter_id)
        return SettledDeadLetter(id=letter_id, outcome="replayed")

    async def remove_dead_letter(self, letter_id: LetterId) -> SettledDeadLetter:
        """Discard a message. For an event the answer is 409, because its run would never be completed."""
        place, number = _parse(letter_id)
        if place == _OUTBOX and await self._database.read(partial(_exists, number=int(number))):
            raise RequestFailed(ProblemType.CONFLICT, "an event cannot be removed, only replayed")
        if place not in self._streams or not await self._streams[place].remove([number]):
            raise NotFound("dead letter", letter_id)
        return SettledDeadLetter(id=letter_id, outcome="removed")

    async def _from(self, after: str | None, limit: int, kind: str | None) -> list[DeadLetterDetails]:
        """The dead letters after an id, from the outbox and then from each stream."""
        place, number = _parse(after) if after else ("", "")
        places = [_OUTBOX, *self._streams]
        found: list[DeadLetterDetails] = []
        for each in places[places.index(place) if place in places else 0 :]:
            if kind in (None, "event" if each == _OUTBOX else "message") and len(found) < limit:
                found += await self._at(each, number if each == place else None, limit - len(found))
        return found

    async def _at(self, place: str, after: str | None, limit: int) -> list[DeadLetterDetails]:
        if place == _OUTBOX:
            rows = await self._database.read(partial(_events, after=int(after or 0), limit=limit))
            return [_event(row) for row in rows]
        page = await self._streams[place].page(after=after, limit=limit)
        return [_message(place, letter) for letter in page.letters]


def _parse(letter_id: str) -> tuple[str, str]:
    """Split an id into its origin and the id within it."""
    place, _, number = letter_id.partition("-")
    return place, number


def _event(row: StoredEvent) -> DeadLetterDetails:
    try:
        contents: Any = msgspec.json.decode(row.payload_json)
    except msgspec.DecodeError:
        contents = None
    return DeadLetterDetails(
        id=f"{_OUTBOX}-{row.id}",
        kind="event",
        name=row.kind,
        key=row.key,
        attempts=row.attempts,
        reason=row.last_error or "",
        at=row.created_at,
        contents=redact(contents),
    )


def _message(place: str, letter: DeadMessage) -> DeadLetterDetails:
    return DeadLetterDetails(
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


def _next(query: DeadLetterFilter, after: str) -> str:
    kind = [("kind", query.kind)] if query.kind else []
    return f"/v1/dead-letters?{urlencode([*kind, ('after', after), ('limit', query.limit)])}"
