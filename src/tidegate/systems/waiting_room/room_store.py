"""Tables of rooms and admissions, and the rows of rooms. Every function works in the caller's transaction."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    Row,
    Table,
    UniqueConstraint,
    delete,
    select,
    update,
)

from tidegate.core.clock import milliseconds, to_ms
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.ids import new_id
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata
from tidegate.systems.waiting_room.model import (
    LONGEST_ENTRANCE,
    LONGEST_ROOM,
    LONGEST_TITLE,
    LONGEST_USER,
    Room,
    RoomExists,
    RoomInUse,
    RoomPlan,
    RoomState,
    new_seed,
    require_room_name,
)

waiting_rooms = Table(
    "waiting_rooms",
    metadata,
    Column("name", exact_text(LONGEST_ROOM), primary_key=True),
    Column("line", exact_text(36), nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("opens_at", UtcDateTime),
    Column("capacity", Integer, nullable=False),
    Column("admit_per_second", Double),
    Column("session_ms", Integer, nullable=False),
    Column("longest_session_ms", Integer, nullable=False),
    Column("abandon_ms", Integer, nullable=False),
    Column("log_length", Integer, nullable=False),
    Column("seed", exact_text(64), nullable=False),
    # Raised each time the room is installed on the server; voids admissions that began under an older epoch.
    Column("epoch", BigInteger, nullable=False),
    # The last arrival number that was reserved; no higher number was ever given.
    Column("reserved", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    # NULL in these columns means the default.
    Column("title", exact_text(LONGEST_TITLE)),
    Column("entrance", exact_text(LONGEST_ENTRANCE)),
    Column("anonymous", Boolean),
    # Bits of the hash puzzle that a browser solves before it joins; NULL: none.
    Column("puzzle_bits", Integer),
    **TABLE_OPTIONS,
)
"""One row per room."""
room_tokens = Table(
    "room_tokens",
    metadata,
    Column("room", exact_text(LONGEST_ROOM), primary_key=True),
    Column("admission", BigInteger, primary_key=True, autoincrement=False),
    Column("user_id", exact_text(LONGEST_USER), nullable=False),
    # The user while the session is active, else NULL. With the constraint below, a user cannot be inside twice.
    Column("active_user", exact_text(LONGEST_USER)),
    Column("place", BigInteger),
    Column("is_guest", Boolean, nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("admitted_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("ends_at", UtcDateTime, nullable=False),
    # When the place became free; NULL while the session is active. The capacity limits the overlap of admitted_at to
    # ended_at, so that it can be audited from these rows.
    Column("ended_at", UtcDateTime),
    UniqueConstraint("room", "active_user"),
    Index(None, "room", "place"),
    # For the retention rule.
    Index(None, "ended_at"),
    **TABLE_OPTIONS,
)
"""One row per admission. SQL decides which visitors are inside."""


_c = waiting_rooms.c
NUMBERS_AT_FIRST = 2**14
"""Arrival numbers that are reserved in SQL for each run of the server, since a restarted server may have forgotten the
last numbers that it gave."""
NUMBERS_AT_ONCE = 2**20
"""Arrival numbers that are reserved when half of the previous ones are used."""


def create(tx: Transaction, name: str, plan: RoomPlan) -> Room:
    """Create a closed room. Raises `RoomExists`."""
    require_room_name(name)
    row = {
        "name": name,
        "line": new_id(),
        "state": RoomState.CLOSED,
        "opens_at": None,
        **_columns(plan),
        "seed": new_seed(),
        # Greater than any epoch of a deleted room of this name, which other processes may still know.
        "epoch": to_ms(tx.now),
        "reserved": 0,
        "created_at": tx.now,
        "changed_at": tx.now,
    }
    if tx.execute(tx.insert_if_absent(waiting_rooms), row).rowcount != 1:
        raise RoomExists(f"room {name!r} exists already")
    return get(tx, name)


def get(tx: Transaction, name: str) -> Room:
    """Return a room. Raises `NotFound`."""
    return _found(name, tx.execute(select(waiting_rooms).where(_c.name == name)).one_or_none())


def list_rooms(tx: Transaction) -> list[Room]:
    """Return all rooms, ordered by name."""
    return [_room(row) for row in tx.execute(select(waiting_rooms).order_by(_c.name))]


def open_(tx: Transaction, name: str, opens_at: datetime | None) -> Room:
    """Open a room. Visitors that join before `opens_at` take part in a draw. By default the room starts now, or when it
    started before."""
    room = _locked(tx, name)
    if opens_at is not None and opens_at != room.opens_at and room.has_started(tx.now):
        raise InvalidArgument("opens_at", opens_at.isoformat(), "the room has started already")
    # A start that was reached stays: after it the seed is public, and no visitor may be drawn with a known seed.
    start = room.opens_at if room.has_started(tx.now) else opens_at or tx.now
    return _update_row(tx, name, {"state": RoomState.OPEN, "opens_at": start})


def close(tx: Transaction, name: str) -> Room:
    """Close a room: visitors cannot join and are not admitted."""
    _locked(tx, name)
    return _update_row(tx, name, {"state": RoomState.CLOSED})


def replace_plan(tx: Transaction, name: str, plan: RoomPlan) -> Room:
    """Replace the plan of a room. Sessions that have begun are not changed."""
    _locked(tx, name)
    return _update_row(tx, name, _columns(plan))


def change_plan(tx: Transaction, name: str, changes: Mapping[str, Any]) -> Room:
    """Change some fields of the plan of a room."""
    return _update_row(tx, name, _columns(msgspec.structs.replace(_locked(tx, name).plan, **changes)))


def remove(tx: Transaction, name: str) -> None:
    """Delete the row of a room. Raises `RoomInUse` unless the room is closed."""
    require_closed(tx, name)
    tx.execute(delete(waiting_rooms).where(_c.name == name))


def require_closed(tx: Transaction, name: str) -> None:
    """Raise `RoomInUse` unless the room is closed, and lock its row until the commit."""
    if _locked(tx, name).state is not RoomState.CLOSED:
        raise RoomInUse(f"room {name!r} is open; close it before you delete it")


def begin_epoch(tx: Transaction, name: str, numbers: int = 0) -> tuple[Room, int]:
    """Raise the epoch, which voids all admissions in progress, and reserve `numbers` more arrival numbers.

    Returns the room, and the last arrival number that was reserved before.
    """
    room = _locked(tx, name)
    # Numbers are reserved here before the server gives any of them, so none is given twice.
    values = {"epoch": room.epoch + 1, "reserved": room.reserved + numbers}
    tx.execute(update(waiting_rooms).where(_c.name == name).values(values))
    return msgspec.structs.replace(room, **values), room.reserved


def lock_shared(tx: Transaction, name: str) -> Room:
    """Return a room and keep its epoch from changing until the commit. Other transactions may hold the same lock."""
    return _found(
        name, tx.execute(select(waiting_rooms).where(_c.name == name).with_for_update(read=True)).one_or_none()
    )


def _locked(tx: Transaction, name: str) -> Room:
    return _found(name, tx.execute(select(waiting_rooms).where(_c.name == name).with_for_update()).one_or_none())


def _update_row(tx: Transaction, name: str, values: Mapping[str, Any]) -> Room:
    tx.execute(update(waiting_rooms).where(_c.name == name).values({**values, "changed_at": tx.now}))
    return get(tx, name)


def _columns(plan: RoomPlan) -> dict[str, Any]:
    return {
        "capacity": plan.capacity,
        "admit_per_second": plan.admit_per_second,
        "session_ms": milliseconds(plan.session),
        "longest_session_ms": milliseconds(plan.longest_session),
        "abandon_ms": milliseconds(plan.abandon_after),
        "log_length": plan.log_length,
        "title": plan.title or None,
        "entrance": plan.entrance,
        "anonymous": plan.anonymous,
        "puzzle_bits": plan.puzzle_bits,
    }


def _found(name: str, row: Row[*tuple[Any, ...]] | None) -> Room:
    if row is None:
        raise NotFound("room", name)
    return _room(row)


def _room(row: Row[*tuple[Any, ...]]) -> Room:
    """Convert a row of the table of rooms."""
    found: Any = row
    plan = RoomPlan(
        capacity=found.capacity,
        admit_per_second=found.admit_per_second,
        session=timedelta(milliseconds=found.session_ms),
        longest_session=timedelta(milliseconds=found.longest_session_ms),
        abandon_after=timedelta(milliseconds=found.abandon_ms),
        log_length=found.log_length,
        title=found.title or "",
        entrance=found.entrance,
        anonymous=bool(found.anonymous),
        puzzle_bits=found.puzzle_bits or 0,
    )
    return Room(
        name=found.name,
        line=found.line,
        state=RoomState(found.state),
        opens_at=found.opens_at,
        plan=plan,
        seed=found.seed,
        epoch=found.epoch,
        reserved=found.reserved,
    )
