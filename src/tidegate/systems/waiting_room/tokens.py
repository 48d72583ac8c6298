"""Who is inside: the token rows. SQL decides; every function works in the caller's transaction.

An admission has one row, and the first who writes it decides what it is: ACTIVE by whoever admits, ROLLED_BACK by
whoever settles an admission that nobody finished. So a slow process can never let somebody in whose place was given
back.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import delete, func, select, update

from tidegate.core.errors import TidegateError
from tidegate.core.transitions import sources_of
from tidegate.storage.sql import Transaction
from tidegate.systems.waiting_room.line import require_user
from tidegate.systems.waiting_room.rooms import RoomInUse, get, held_still
from tidegate.systems.waiting_room.tables import room_tokens

_c = room_tokens.c
_ONE_MS = timedelta(milliseconds=1)


class TokenState(StrEnum):
    """What became of an admission."""

    ENTERING = "entering"  # out of the line, known to the server only: no row yet
    ACTIVE = "active"  # inside
    ROLLED_BACK = "rolled_back"  # it did not come to that; the old place is the user's again
    EXPIRED = "expired"  # the time was over
    LEFT = "left"  # by his own will


TOKEN_MOVES = {
    TokenState.ENTERING: {TokenState.ACTIVE, TokenState.ROLLED_BACK, TokenState.LEFT},
    TokenState.ACTIVE: {TokenState.EXPIRED, TokenState.LEFT},
    TokenState.ROLLED_BACK: set[TokenState](),
    TokenState.EXPIRED: set[TokenState](),
    TokenState.LEFT: set[TokenState](),
}
_OVER = (TokenState.EXPIRED, TokenState.LEFT)
_USED = (TokenState.ACTIVE, *_OVER)


class NotActive(TidegateError):
    """The user is not inside the room, or no longer."""

    problem = "not_active"

    def __init__(self, room: str, user: str) -> None:
        super().__init__(f"{user!r} is not inside room {room!r}")
        self.room, self.user = room, user


class Entry(msgspec.Struct, frozen=True):
    """Somebody on the way from the line into the room."""

    user: str
    admission: int
    place: int | None = None
    """None: he did not wait."""


class Session(msgspec.Struct, frozen=True):
    """Somebody inside."""

    user: str
    admission: int
    expires_at: datetime
    ends_at: datetime
    """When it ends in any case."""
    is_guest: bool = False

    def left_ms(self, now: datetime) -> int:
        """How long it lasts from `now` on, rounded up: the server must not look too early."""
        return max(0, -((now - self.expires_at) // _ONE_MS))


class Sorted(msgspec.Struct, frozen=True):
    """What became of admissions, or of sessions."""

    active: list[Session]
    over: list[Entry] = []
    """Those whose sessions have ended, or who left on the way: nothing is theirs any more."""
    others: list[Entry] = []
    """Those who did not come in by this."""


class VoidEpoch(TidegateError):
    """The room was installed anew since these were taken out of the line."""


def admit(tx: Transaction, room: str, epoch: int, entries: Sequence[Entry], is_guest: bool = False) -> Sorted:
    """Let them in; raise `VoidEpoch` where they were taken from a line that is no more.

    Not let in are those whose admission somebody settled before, and those who are inside by another one.
    """
    current = held_still(tx, room)
    if current.epoch != epoch:
        raise VoidEpoch(f"room {room!r} is at epoch {current.epoch}, not {epoch}")
    plan, now = current.plan, tx.now
    times = {"expires_at": now + plan.session, "ends_at": now + plan.longest_session}
    _write(tx, room, entries, TokenState.ACTIVE, {**times, "is_guest": is_guest})
    return sort_out(tx, room, entries)


def settle(tx: Transaction, room: str, entries: Sequence[Entry], unless_active: TokenState) -> Sorted:
    """Write that these admissions came to nothing, unless a row says what they came to."""
    times = {"expires_at": tx.now, "ends_at": tx.now}
    _write(tx, room, entries, unless_active, {**times, "is_guest": False})
    return sort_out(tx, room, entries)


def expire(tx: Transaction, room: str, entries: Sequence[Entry]) -> Sorted:
    """End those of these sessions whose time is over; of the others it is told how long they last.

    Whoever is buying in this moment is passed over: nobody waits for him.
    """
    ended = select(_c.admission).where(_c.room == room, _c.admission.in_([each.admission for each in entries]))
    free = tx.execute(ended.where(_c.expires_at <= tx.now).with_for_update(skip_locked=True)).scalars().all()
    _end(tx, room, [each for each in entries if each.admission in free], TokenState.EXPIRED)
    return sort_out(tx, room, entries)


def leave(tx: Transaction, room: str, entry: Entry) -> None:
    """End one session, or one admission that is under way."""
    _end(tx, room, [entry], TokenState.LEFT)
    settle(tx, room, [entry], TokenState.LEFT)


def renew(tx: Transaction, room: str, user: str) -> Session:
    """Prolong a session of which less than half is left, up to its very end; raise `NotActive`."""
    session = get(tx, room).plan.session
    present = require_active(tx, room, user)
    if present.expires_at - tx.now >= session / 2 or present.expires_at >= present.ends_at:
        return present
    expires_at = min(tx.now + session, present.ends_at)
    tx.execute(
        update(room_tokens).where(_c.room == room, _c.admission == present.admission).values(expires_at=expires_at)
    )
    return msgspec.structs.replace(present, expires_at=expires_at)


def require_active(tx: Transaction, room: str, user: str) -> Session:
    """The binding check: call it in the transaction that reserves or pays. Raise `NotActive`.

    Until its commit the session cannot be ended by anybody else: what was bought was bought by somebody inside.
    """
    user = require_user(user)
    those = _SESSION.where(_c.room == room, _c.active_user == user, _c.state == TokenState.ACTIVE)
    row = tx.execute(those.with_for_update()).one_or_none()
    if row is None or row.expires_at <= tx.now:
        raise NotActive(room, user)
    return _session(row)


def find_active(tx: Transaction, room: str, user: str) -> Session:
    """The same for one who only wants to know."""
    row = tx.execute(_SESSION.where(_c.room == room, _c.active_user == require_user(user))).one_or_none()
    if row is None or row.expires_at <= tx.now:
        raise NotActive(room, user)
    return _session(row)


def everybody_inside(tx: Transaction, room: str) -> list[Session]:
    """All sessions that have not been ended, also those whose time is over: their places are not free yet."""
    rows = tx.execute(_SESSION.where(_c.room == room, _c.active_user.is_not(None)).order_by(_c.admission))
    return [_session(row) for row in rows]


def require_empty(tx: Transaction, room: str) -> None:
    """Raise `RoomInUse` where somebody is inside."""
    inside = select(func.count()).where(_c.room == room, _c.active_user.is_not(None), _c.expires_at > tx.now)
    if count := tx.execute(inside).scalar_one():
        raise RoomInUse(f"{count} visitor(s) are inside room {room!r}; wait until their sessions end, or force it")


def remove(tx: Transaction, room: str, most: int) -> int:
    """Delete up to `most` rows of a room; how many there were."""
    oldest = tx.execute(select(_c.admission).where(_c.room == room).order_by(_c.admission).limit(most)).scalars().all()
    if oldest:
        tx.execute(delete(room_tokens).where(_c.room == room, _c.admission <= oldest[-1]))
    return len(oldest)


def highest_admission(tx: Transaction, room: str) -> int:
    """The greatest number that an admission has in SQL; 0 where there is none."""
    return tx.execute(select(func.max(_c.admission)).where(_c.room == room)).scalar_one() or 0


def sort_out(tx: Transaction, room: str, entries: Sequence[Entry]) -> Sorted:
    """What has become of admissions by now."""
    numbers = [each.admission for each in entries]
    those = _SESSION.add_columns(_c.state).where(_c.room == room, _c.admission.in_(numbers)).order_by(_c.admission)
    rows = {(row.user_id, row.admission): row for row in tx.execute(those)}
    states = [(each, row.state if (row := rows.get((each.user, each.admission))) else None) for each in entries]
    return Sorted(
        [_session(row) for row in rows.values() if row.state == TokenState.ACTIVE],
        over=[each for each, state in states if state in _OVER],
        others=[each for each, state in states if state not in _USED],
    )


def ended_since(tx: Transaction, room: str, admission: int) -> list[Entry]:
    """Those who were let in from the line by a later admission than this one, and are gone already."""
    those = select(_c.user_id, _c.admission, _c.place).where(_c.room == room, _c.admission > admission)
    rows = tx.execute(those.where(_c.place.is_not(None), _c.state.in_(_OVER)))
    return [Entry(row.user_id, row.admission, row.place) for row in rows]


def is_used(tx: Transaction, room: str, place: int) -> bool:
    """Whether somebody was let in from this place."""
    those = select(_c.admission).where(_c.room == room, _c.place == place, _c.state.in_(_USED)).limit(1)
    return tx.execute(those).first() is not None


_SESSION = select(_c.user_id, _c.admission, _c.expires_at, _c.ends_at, _c.is_guest)


def _write(tx: Transaction, room: str, entries: Iterable[Entry], state: TokenState, values: Mapping[str, Any]) -> None:
    rows = [
        {
            "room": room,
            "admission": each.admission,
            "user_id": each.user,
            "active_user": each.user if state is TokenState.ACTIVE else None,
            "place": each.place,
            "state": state,
            "admitted_at": tx.now,
            "ended_at": None if state is TokenState.ACTIVE else tx.now,
            **values,
        }
        for each in sorted(entries, key=lambda entry: entry.admission)
    ]
    tx.insert_many(room_tokens, rows, skip_existing=True)


def _end(tx: Transaction, room: str, entries: Iterable[Entry], state: TokenState, *conditions: Any) -> None:
    tx.execute(
        update(room_tokens)
        .where(_c.room == room, _c.admission.in_([each.admission for each in entries]))
        .where(_c.state.in_(sources_of(TOKEN_MOVES, state)), *conditions)
        .values(state=state, active_user=None, ended_at=tx.now)
    )


def _session(row: Any) -> Session:
    return Session(row.user_id, row.admission, row.expires_at, row.ends_at, row.is_guest)
