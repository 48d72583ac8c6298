"""Transactional outbox: events are written in the caller's transaction and delivered after its commit.

    def complete(tx, run_id):
        tx.execute(...)                                             # the run is complete
        outbox.add(tx, Event("run.completed", key=run_id, payload={}))  # delivered after the commit

A row is PENDING until its event was handled, and is then removed. An event that failed permanently is DEAD until it is
replayed. The process may die between any two steps:

| it dies                                      | state                         | repaired by                         |
| -------------------------------------------- | ----------------------------- | ----------------------------------- |
| before the commit                            | nothing                       | nothing to repair                   |
| after the commit, before the wake-up         | a pending row, no wake-up     | any later wake-up, or the next relay|
| while a handler runs, or before the removal  | a pending row, maybe handled  | the next relay delivers it again;   |
|                                              |                               | `once` makes that harmless          |

The functions here take a transaction and leave its commit to the caller. See docs/decisions/0002.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Row, Text, delete, func, or_, select, type_coerce, update

from tidegate.core.arguments import require_at_most, require_name, require_not_negative, require_positive
from tidegate.core.errors import InvalidArgument
from tidegate.core.ids import new_id
from tidegate.core.telemetry import get_logger
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.core.transitions import Moves, check_moves, sources_of
from tidegate.storage.sql.schema import encode_json, handled_events, outbox_events
from tidegate.storage.sql.transaction import Transaction

COMMITTED = "outbox"
"""The topic announced by every transaction that added or replayed events."""
_KIND = f"{COMMITTED}:"

LARGEST_PAYLOAD = 256 * 1024
"""In bytes. The relay keeps many events in memory; what is larger belongs into a table, and its id into the event."""

_LONGEST_TEXT = 200
_LONGEST_ERROR = 4000
_CHUNK = 500

log = get_logger(__name__)


class EventState(StrEnum):
    """State of an event in the outbox."""

    PENDING = "pending"  # committed, not yet handled; removed when it is
    DEAD = "dead"  # failed for good: the dead letter


MOVES: Moves[EventState] = {
    EventState.PENDING: {EventState.DEAD},
    EventState.DEAD: {EventState.PENDING},
}
check_moves(MOVES, EventState, initial=EventState.PENDING)


@dataclass(frozen=True)
class Event:
    """An event. Events of one `key` are delivered in order, those of different keys in any order.

    Example:
        event = Event("article.published", key="articles", payload={"title": "Tides"})
        await database.transaction(lambda tx: outbox.add(tx, event))
    """

    kind: str
    key: str
    payload: Any
    event_id: str = field(default_factory=new_id)
    created_at: datetime | None = field(default=None, compare=False)
    """When it was committed; known of those that are delivered."""

    def __post_init__(self) -> None:
        for name, value in (("kind", self.kind), ("key", self.key), ("event_id", self.event_id)):
            _require_short_name(name, value)


@dataclass(frozen=True)
class StoredEvent:
    """An event as stored. The payload is decoded on demand, so that a malformed one affects only its own event."""

    id: int
    event_id: str
    kind: str
    key: str
    payload_json: str
    attempts: int
    created_at: datetime
    last_error: str | None

    def event(self) -> Event:
        """The event that was added. Raises `ValueError` if its payload is malformed."""
        return Event(self.kind, self.key, msgspec.json.decode(self.payload_json), self.event_id, self.created_at)


class DeadEvent(NamedTuple):
    """A dead event without its payload."""

    id: int
    kind: str
    last_error: str | None
    created_at: datetime


@dataclass(frozen=True)
class OutboxDepth:
    """Number of pending and dead events, and the time of the oldest pending one."""

    pending: int
    dead: int
    oldest: datetime | None


@dataclass(frozen=True)
class UntriedEvents:
    """Pending events of one kind for which no handler was called."""

    kind: str
    events: int
    oldest: datetime


def topic_of(kind: str) -> str:
    """The topic announced by transactions that added or replayed events of a kind."""
    return _KIND + kind


def add(tx: Transaction, *events: Event) -> None:
    """Write `events` in the caller's transaction, and wake the relay after its commit."""
    if not events:
        return
    tx.insert_many(outbox_events, [_row(event, tx.now) for event in events])
    _announce(tx, {event.kind for event in events})


def pending_page(
    tx: Transaction,
    *,
    after: int = 0,
    limit: int = 200,
    without_keys: Collection[str] = (),
    kinds: Collection[str] | None = None,
    now: datetime | None = None,
) -> list[StoredEvent]:
    """Due events in the order of their ids, from the first one past `after`; of some kinds, or all.

    Keys with an event that waits for its next try are left out, since nothing may overtake it; `without_keys` are left
    out too. Always begin at 0: an id is given before its commit, so a lower one may appear after a higher one was read.
    Pass the same `now` for all pages of one read, since a key that comes due in between would lack its first event.
    """
    require_not_negative("after", after)
    require_positive("limit", limit)
    now = now or tx.now
    # A subquery, so that a key with a waiting event is skipped however many events it has.
    blocked = select(outbox_events.c.event_key).where(_waiting(now))
    conditions = [_is(EventState.PENDING), _due(now), outbox_events.c.id > after]
    conditions.append(outbox_events.c.event_key.not_in(blocked))
    if kinds is not None:
        conditions.append(outbox_events.c.kind.in_(sorted(kinds)))
    if without_keys:
        conditions.append(outbox_events.c.event_key.not_in(sorted(without_keys)))
    return _stored(tx, conditions, limit)


def next_due(tx: Transaction, *, kinds: Collection[str] | None = None, now: datetime | None = None) -> datetime | None:
    """Return the earliest time of a next attempt; None if no event waits for one."""
    waiting = select(func.min(outbox_events.c.not_before)).where(_waiting(now or tx.now))
    if kinds is not None:
        waiting = waiting.where(outbox_events.c.kind.in_(sorted(kinds)))
    return tx.execute(waiting).scalar_one()


def retrying(tx: Transaction, kinds: Collection[str]) -> dict[str, int]:
    """Return the number of events per kind that failed and wait for their next attempt."""
    waiting = [
        _is(EventState.PENDING),
        outbox_events.c.not_before.is_not(None),
        outbox_events.c.kind.in_(sorted(kinds)),
    ]
    counted = select(outbox_events.c.kind, func.count()).where(*waiting).group_by(outbox_events.c.kind)
    return dict.fromkeys(kinds, 0) | {row[0]: row[1] for row in tx.execute(counted)}


def untried(tx: Transaction, *, before: datetime, limit: int = 10) -> list[UntriedEvents]:
    """Kinds with pending events from before `before` that no handler was called for; those with the most first.

    Events behind one of the same key that failed are left out: they wait for it, and not for a handler.
    """
    failing = outbox_events.alias()
    held_up = select(failing.c.event_key).where(failing.c.state == EventState.PENDING, failing.c.attempts > 0)
    c, events = outbox_events.c, func.count()
    waiting = [_is(EventState.PENDING), c.attempts == 0, c.created_at < before, c.event_key.not_in(held_up)]
    kinds = select(c.kind, events, func.min(c.created_at)).where(*waiting).group_by(c.kind)
    return [UntriedEvents(*row) for row in tx.execute(kinds.order_by(events.desc(), c.kind).limit(limit))]


def pending_kinds(tx: Transaction, prefix: str) -> list[str]:
    """The kinds of pending events that begin with `prefix`."""
    kind = outbox_events.c.kind
    found = select(kind).where(_is(EventState.PENDING), kind.startswith(prefix, autoescape=True)).distinct()
    return sorted(row.kind for row in tx.execute(found))


def remove(tx: Transaction, ids: Collection[int]) -> int:
    """Delete handled events. Deleting a missing event has no effect."""
    remaining = iter(sorted(ids))  # in one order everywhere, so that two cannot deadlock
    removed = 0
    while chunk := list(islice(remaining, _CHUNK)):
        # Only pending rows: another relay may have made one a dead letter.
        handled = delete(outbox_events).where(outbox_events.c.id.in_(chunk), _is(EventState.PENDING))
        removed += tx.execute(handled).rowcount
    return removed


def postpone(tx: Transaction, row_id: int, *, seen: int, not_before: datetime, error: str, counts: bool = True) -> bool:
    """Record that an event was not delivered, and when it is due again. `counts`: the failure counts as an attempt.

    `seen` is the number of attempts that the event had when it was loaded. False means that the row is gone or dead, or
    that another relay has counted an attempt since. Repeating the call changes nothing.
    """
    require_not_negative("seen", seen)
    change = {"attempts": seen + counts, "not_before": not_before, "last_error": _kept(error)}
    mine = [outbox_events.c.id == row_id, _is(EventState.PENDING), outbox_events.c.attempts <= seen]
    return tx.execute(update(outbox_events).where(*mine).values(change)).rowcount == 1


def mark_dead(tx: Transaction, row_id: int, *, attempts: int, error: str) -> bool:
    """Make the event a dead letter, with the reason. False means that it was not pending any more."""
    require_not_negative("attempts", attempts)
    movable = outbox_events.c.state.in_(sources_of(MOVES, EventState.DEAD))
    change = {"state": EventState.DEAD, "attempts": attempts, "last_error": _kept(error), "not_before": None}
    return tx.execute(update(outbox_events).where(outbox_events.c.id == row_id, movable).values(change)).rowcount == 1


def dead_letters(
    tx: Transaction,
    *,
    kind: str | None = None,
    keys: Collection[str] | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[StoredEvent]:
    """Dead events in the order of their ids, from the first one past `after`; of one kind, of some keys, or all."""
    require_not_negative("after", after)
    require_positive("limit", limit)
    conditions = [_is(EventState.DEAD), outbox_events.c.id > after]
    if kind is not None:
        conditions.append(outbox_events.c.kind == _require_short_name("kind", kind))
    if keys is not None:
        conditions.append(outbox_events.c.event_key.in_(sorted(keys)))
    return _stored(tx, conditions, limit)


def dead_summaries(tx: Transaction, *, after: int = 0, limit: int = 100) -> list[DeadEvent]:
    """Dead events without their payloads, in the order of their ids, from the first one past `after`."""
    require_not_negative("after", after)
    require_positive("limit", limit)
    c = outbox_events.c
    found = select(c.id, c.kind, c.last_error, c.created_at).where(_is(EventState.DEAD), c.id > after)
    return [DeadEvent(*row) for row in tx.execute(found.order_by(c.id).limit(limit))]


def replay(
    tx: Transaction, *, ids: Collection[int] | None = None, kind: str | None = None, everything: bool = False
) -> int:
    """Make dead events pending again, with no attempts, and wake the relay after the commit. Returns their number.

    Name exactly one of: their `ids`, their `kind`, or `everything`.
    """
    if (ids is not None) + (kind is not None) + everything != 1:
        raise InvalidArgument("which", {"ids": ids, "kind": kind, "everything": everything}, "name exactly one")
    which: list[ColumnElement[bool]] = [outbox_events.c.state.in_(sources_of(MOVES, EventState.PENDING))]
    if ids is not None:
        which.append(outbox_events.c.id.in_(sorted(ids)))
    if kind is not None:
        which.append(outbox_events.c.kind == kind)
    # `last_error` stays, so that the earlier reason remains visible until the next failure.
    change = {"state": EventState.PENDING, "attempts": 0, "not_before": None}
    # Read before the update, which changes the state by which they are found.
    kinds = [row.kind for row in tx.execute(select(outbox_events.c.kind).where(*which).distinct())]
    replayed = tx.execute(update(outbox_events).where(*which).values(change)).rowcount
    if replayed:
        _announce(tx, kinds)
        tx.after_commit(lambda: log.info("outbox.replayed", events=replayed, kind=kind))
    return replayed


def once(tx: Transaction, handler: str, event_id: str) -> bool:
    """True the first time `handler` meets `event_id`, in the transaction that holds the handler's effects.

    If that commits, every later call is False; if it rolls back, the next one is the first. The database serialises
    concurrent calls.
    """
    row = {
        "handler": _require_short_name("handler", handler),
        "event_id": _require_short_name("event_id", event_id),
        "handled_at": tx.now,
    }
    return tx.execute(tx.insert_if_absent(handled_events).values(row)).rowcount == 1


def depth(tx: Transaction) -> OutboxDepth:
    """Return the number of pending and dead events, and the time of the oldest pending one."""
    counted = select(outbox_events.c.state, func.count()).group_by(outbox_events.c.state)
    counts: dict[str, int] = {row[0]: row[1] for row in tx.execute(counted)}
    # The first by its number: among a million that wait, the earliest by the clock would have to be looked for.
    first = select(outbox_events.c.created_at).where(_is(EventState.PENDING)).order_by(outbox_events.c.id).limit(1)
    oldest = tx.execute(first).scalar_one_or_none()
    return OutboxDepth(counts.get(EventState.PENDING, 0), counts.get(EventState.DEAD, 0), oldest)


def _announce(tx: Transaction, kinds: Collection[str]) -> None:
    # The first topic is for the relay, the others for listeners of single kinds.
    tx.announce(COMMITTED)
    for kind in sorted(kinds):
        tx.announce(topic_of(kind))


def _row(event: Event, now: datetime) -> dict[str, Any]:
    size = len(encode_json(event.payload).encode())
    require_at_most("bytes in the payload", size, LARGEST_PAYLOAD)
    return {
        "event_id": event.event_id,
        "kind": event.kind,
        "event_key": event.key,
        "payload": event.payload,
        "state": EventState.PENDING,
        "attempts": 0,
        "created_at": now,
    }


def _stored(tx: Transaction, conditions: Sequence[ColumnElement[bool]], limit: int) -> list[StoredEvent]:
    c = outbox_events.c
    # As text: a payload that cannot be decoded must not fail the whole page.
    payload = type_coerce(c.payload, Text)
    columns = select(c.id, c.event_id, c.kind, c.event_key, payload, c.attempts, c.created_at, c.last_error)
    return [_read(row) for row in tx.execute(columns.where(*conditions).order_by(c.id).limit(limit))]


def _read(row: Row[*tuple[Any, ...]]) -> StoredEvent:
    return StoredEvent(*row)


def _is(state: EventState) -> ColumnElement[bool]:
    return outbox_events.c.state == state


def _due(now: datetime) -> ColumnElement[bool]:
    return or_(outbox_events.c.not_before.is_(None), outbox_events.c.not_before <= now)


def _waiting(now: datetime) -> ColumnElement[bool]:
    return _is(EventState.PENDING) & (outbox_events.c.not_before > now)


def _kept(error: str) -> str:
    return fit_to_keep(error, most=_LONGEST_ERROR)


def _require_short_name(name: str, value: str) -> str:
    require_name(name, value)
    require_at_most(f"the length of {name}", len(value), _LONGEST_TEXT)
    if value != value.strip():
        # Some servers take "a" and "a " for the same.
        raise InvalidArgument(name, value, "must not begin or end with a space")
    return value
