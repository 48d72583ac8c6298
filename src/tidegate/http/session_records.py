"""Sessions and revocations in SQL. Every function runs in the caller's transaction.

Rows expire with their sessions. Each write removes some expired rows.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from sqlalchemy import Column, Table, delete, exists, func, literal, or_, select

from tidegate.http.session_tables import http_sessions, revoked_sessions
from tidegate.storage.sql import Transaction

EVERY_SESSION = "*"
_REMOVED_AT_ONCE = 500
_s, _r = http_sessions.c, revoked_sessions.c


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is logged in."""

    id: str
    key_id: str
    """Id of the key of the login, as in the log."""
    role: str
    address: str
    """Client address of the login."""
    opened_at: datetime
    expires_at: datetime


def record(tx: Transaction, session: OpenSession) -> None:
    """Insert the row of a session."""
    tx.execute(tx.insert_if_absent(http_sessions), msgspec.structs.asdict(session))
    _forget(tx, http_sessions, _s.id)


def listed(tx: Transaction, limit: int) -> Sequence[OpenSession]:
    """Open sessions, newest first, without expired and revoked ones."""
    # A revocation covers sessions opened up to its time, so that a later login is valid.
    revoked = exists().where(
        or_(_r.subject == _s.id, _r.subject == _s.key_id, _r.subject == EVERY_SESSION), _r.opened_until >= _s.opened_at
    )
    found = select(http_sessions).where(_s.expires_at > tx.now, ~revoked)
    rows = tx.execute(found.order_by(_s.opened_at.desc(), _s.id).limit(limit))
    return [OpenSession(**row) for row in rows.mappings()]


def revoke(tx: Transaction, subject: str, expires_at: datetime) -> None:
    """Revoke the open sessions of a subject: one session, a key, or all. `expires_at`: when the last one expires."""
    # Replaces an earlier revocation of the same subject, which covers fewer sessions.
    tx.execute(delete(revoked_sessions).where(_r.subject == subject))
    # The clock of the process that opened a session may be ahead of this one.
    of_subject = or_(_s.id == subject, _s.key_id == subject, literal(subject) == EVERY_SESSION)
    newest = tx.execute(select(func.max(_s.opened_at)).where(of_subject)).scalar()
    row = {"subject": subject, "opened_until": max(newest or tx.now, tx.now), "expires_at": expires_at}
    tx.execute(tx.insert_if_absent(revoked_sessions), row)
    _forget(tx, revoked_sessions, _r.subject)


def is_revoked(tx: Transaction, session_id: str, key_id: str, opened_at: datetime) -> bool:
    """Whether a session was revoked."""
    subjects = (session_id, key_id, EVERY_SESSION)
    found = select(_r.subject).where(_r.subject.in_(subjects), _r.opened_until >= opened_at)
    return tx.execute(found.limit(1)).first() is not None


def _forget(tx: Transaction, table: Table, key: Column[str]) -> None:
    ended = tx.execute(select(key).where(table.c.expires_at <= tx.now).limit(_REMOVED_AT_ONCE)).scalars().all()
    if ended:
        tx.execute(delete(table).where(key.in_(ended)))
