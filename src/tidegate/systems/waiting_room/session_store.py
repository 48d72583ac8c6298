"""Admissions and sessions in SQL, which decides which visitors are inside.

Every function works in the caller's transaction. An admission has one row, and the first transaction that writes it
decides its state: ACTIVE when the admission succeeds, ROLLED_BACK when another process settles it first. A slow process
can therefore not admit a visitor after the place was given back.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import delete, func, select, update

from tidegate.core.transitions import sources_of
from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.waiting_room.model import (
    ADMISSION_MOVES,
    AdmissionResults,
    AdmissionState,
    EpochReplaced,
    NotActive,
    RoomInUse,
    Session,
    VisitorAdmission,
    require_user,
)
from tidegate.systems.waiting_room.room_store import get, lock_shared, room_tokens

_c = room_tokens.c
_OVER = (AdmissionState.EXPIRED, AdmissionState.LEFT)
_USED = (AdmissionState.ACTIVE, *_OVER)


def admit(
    tx: Transaction, room: str, epoch: int, entries: Sequence[VisitorAdmission], is_guest: bool = False
) -> AdmissionResults:
    """Admit visitors; return the state of each admission.

    Admissions that another process settled are left out, and so are visitors that are inside by another admission.
    Raises `EpochReplaced` if the room was installed again since they were taken out of the line.
    """
    # Shared: admissions do not wait for each other, only for an installation, which takes the lock exclusively.
    current = lock_shared(tx, room)
    if current.epoch != epoch:
        raise EpochReplaced(f"room {room!r} is at epoch {current.epoch}, not {epoch}")
    plan, now = current.plan, tx.now
    times = {"expires_at": now + plan.session, "ends_at": now + plan.longest_session}
    # Existing rows are skipped, so the results are read afterwards and not derived from the insert.
    _write(tx, room, entries, AdmissionState.ACTIVE, {**times, "is_guest": is_guest})
    return results_of(tx, room, entries)


def settle(
    tx: Transaction, room: str, entries: Sequence[VisitorAdmission], unless_active: AdmissionState
) -> AdmissionResults:
    """Write `unless_active` for admissions without a row; return the state of each."""
    times = {"expires_at": tx.now, "ends_at": tx.now}
    _write(tx, room, entries, unless_active, {**times, "is_guest": False})
    return results_of(tx, room, entries)


def expire(tx: Transaction, room: str, entries: Sequence[VisitorAdmission]) -> AdmissionResults:
    """End expired sessions; return the state of each.

    A session that a purchase has locked is left for the next call.
    """
    # `skip_locked`: one slow purchase delays no other session.
    ended = select(_c.admission).where(_c.room == room, _c.admission.in_([each.admission for each in entries]))
    free = tx.execute(ended.where(_c.expires_at <= tx.now).with_for_update(skip_locked=True)).scalars().all()
    _end(tx, room, [each for each in entries if each.admission in free], AdmissionState.EXPIRED)
    return results_of(tx, room, entries)


def leave(tx: Transaction, room: str, entry: VisitorAdmission) -> None:
    """End a session, or an admission that is in progress."""
    # An existing row is ended; if the admission has no row yet, one is written as LEFT, so
    # that it cannot succeed later.
    _end(tx, room, [entry], AdmissionState.LEFT)
    settle(tx, room, [entry], AdmissionState.LEFT)


def renew(tx: Transaction, room: str, user: str) -> Session:
    """Extend a session of which less than half is left, at most until `ends_at`. Raises `NotActive`."""
    session = get(tx, room).plan.session
    # Locks the row, so that a renewal and an expiry of the same session exclude each other.
    present = require_active(tx, room, user)
    if present.expires_at - tx.now >= session / 2 or present.expires_at >= present.ends_at:
        return present
    expires_at = min(tx.now + session, present.ends_at)
    tx.execute(
        update(room_tokens).where(_c.room == room, _c.admission == present.admission).values(expires_at=expires_at)
    )
    return msgspec.structs.replace(present, expires_at=expires_at)


def require_active(tx: Transaction, room: str, user: str) -> Session:
    """Return the active session of a user, and lock it until the commit. Raises `NotActive`.

    This is the binding check: call it in the transaction that reserves or pays. No other transaction can end the
    session before the commit.
    """
    user = require_user(user)
    those = _SESSION.where(_c.room == room, _c.active_user == user, _c.state == AdmissionState.ACTIVE)
    # The expiry skips locked rows, so the session stays active until the caller's commit.
    row = tx.execute(those.with_for_update()).one_or_none()
    if row is None or row.expires_at <= tx.now:
        raise NotActive(room, user)
    return _session(row)


def find_active(tx: Transaction, room: str, user: str) -> Session:
    """Return the active session of a user without locking it. Raises `NotActive`."""
    row = tx.execute(_SESSION.where(_c.room == room, _c.active_user == require_user(user))).one_or_none()
    if row is None or row.expires_at <= tx.now:
        raise NotActive(room, user)
    return _session(row)


def active_sessions(tx: Transaction, room: str) -> list[Session]:
    """Return all sessions that were not ended, including those that are over: their places are not free yet."""
    rows = tx.execute(_SESSION.where(_c.room == room, _c.active_user.is_not(None)).order_by(_c.admission))
    return [_session(row) for row in rows]


def require_empty(tx: Transaction, room: str) -> None:
    """Raise `RoomInUse` if visitors are inside."""
    inside = select(func.count()).where(_c.room == room, _c.active_user.is_not(None), _c.expires_at > tx.now)
    if count := tx.execute(inside).scalar_one():
        raise RoomInUse(f"{count} visitor(s) are inside room {room!r}; wait until their sessions end, or use force")


def remove(tx: Transaction, room: str, most: int) -> int:
    """Delete up to `most` rows of a room; return the number of deleted rows."""
    oldest = tx.execute(select(_c.admission).where(_c.room == room).order_by(_c.admission).limit(most)).scalars().all()
    if oldest:
        tx.execute(delete(room_tokens).where(_c.room == room, _c.admission <= oldest[-1]))
    return len(oldest)


def highest_admission(tx: Transaction, room: str) -> int:
    """Return the highest admission number in SQL; 0 if there is none."""
    return tx.execute(select(func.max(_c.admission)).where(_c.room == room)).scalar_one() or 0


def results_of(tx: Transaction, room: str, entries: Sequence[VisitorAdmission]) -> AdmissionResults:
    """Return the current states of admissions."""
    numbers = [each.admission for each in entries]
    those = _SESSION.add_columns(_c.state).where(_c.room == room, _c.admission.in_(numbers)).order_by(_c.admission)
    # By user and number: if the server gave a number twice after a loss of data, the row that was written first counts.
    rows = {(row.user_id, row.admission): row for row in tx.execute(those)}
    states = [(each, row.state if (row := rows.get((each.user, each.admission))) else None) for each in entries]
    return AdmissionResults(
        [_session(row) for row in rows.values() if row.state == AdmissionState.ACTIVE],
        ended=[each for each, state in states if state in _OVER],
        not_admitted=[each for each, state in states if state not in _USED],
    )


def ended_since(tx: Transaction, room: str, admission: int) -> list[VisitorAdmission]:
    """Return visitors from the line with an admission later than `admission` that has ended."""
    those = select(_c.user_id, _c.admission, _c.place).where(_c.room == room, _c.admission > admission)
    rows = tx.execute(those.where(_c.place.is_not(None), _c.state.in_(_OVER)))
    return [VisitorAdmission(row.user_id, row.admission, row.place) for row in rows]


def is_place_used(tx: Transaction, room: str, place: int) -> bool:
    """Return whether the visitor with this place was admitted."""
    those = select(_c.admission).where(_c.room == room, _c.place == place, _c.state.in_(_USED)).limit(1)
    return tx.execute(those).first() is not None


_SESSION = select(_c.user_id, _c.admission, _c.expires_at, _c.ends_at, _c.is_guest)


def _write(
    tx: Transaction, room: str, entries: Iterable[VisitorAdmission], state: AdmissionState, values: Mapping[str, Any]
) -> None:
    """Insert admissions in the given state; existing ones are not changed."""
    rows = [
        {
            "room": room,
            "admission": each.admission,
            "user_id": each.user,
            # NULL is not unique, so a user may have many rows that are over, and one that is active.
            "active_user": each.user if state is AdmissionState.ACTIVE else None,
            "place": each.place,
            "state": state,
            "admitted_at": tx.now,
            "ended_at": None if state is AdmissionState.ACTIVE else tx.now,
            **values,
        }
        # In the order of the primary key, so that concurrent transactions lock in the same order.
        for each in sorted(entries, key=lambda entry: entry.admission)
    ]
    tx.insert_many(room_tokens, rows, skip_existing=True)


def _end(
    tx: Transaction, room: str, entries: Iterable[VisitorAdmission], state: AdmissionState, *conditions: Any
) -> None:
    tx.execute(
        update(room_tokens)
        .where(_c.room == room, _c.admission.in_([each.admission for each in entries]))
        # Only allowed transitions: a row that is over already keeps its state.
        .where(_c.state.in_(sources_of(ADMISSION_MOVES, state)), *conditions)
        .values(state=state, active_user=None, ended_at=tx.now)
    )


def _session(row: Any) -> Session:
    return Session(row.user_id, row.admission, row.expires_at, row.ends_at, row.is_guest)


def retention_rules(database: Database, tokens_kept: timedelta) -> list[RetentionRule]:
    """Return the rule that deletes records of admissions that ended long ago.

    A record proves that a place was used, which matters for the minutes in which a pass for it is valid. The last
    admission of a room is kept, since later admissions are numbered from it.
    """
    token, other = room_tokens.c, room_tokens.alias("other")
    last = select(func.max(other.c.admission)).where(other.c.room == token.room).scalar_subquery()
    return [
        TableRule(
            database,
            room_tokens,
            tokens_kept,
            lambda before: [token.active_user.is_(None), token.ended_at < before],
            unused=[token.admission < last],
        )
    ]
