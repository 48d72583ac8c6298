"""The registry of browser sessions in SQL, which lists and revokes sessions.

A revocation takes effect in every process with its next request. While the database is unavailable, sessions can be
opened but are not listed, and a session that this process does not know as revoked can read but change nothing. Rows
expire with their sessions. Each write removes some expired rows.

Every process imports this module for the retention rules, so it does not import the HTTP framework.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import Column, Index, Table, delete, exists, func, literal, or_, select

from tidegate.core.arguments import require_name
from tidegate.core.clock import from_ms
from tidegate.core.errors import InvalidArgument, ServerRefused, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata

if TYPE_CHECKING:
    from tidegate.http.callers import HttpCaller

AHEAD_MS = 60_000
"""Tolerated clock difference to the process that opened a session."""
LONGEST_SUBJECT = 64

http_sessions = Table(
    "http_sessions",
    metadata,
    Column("id", exact_text(LONGEST_SUBJECT), primary_key=True),
    # Id of the key of the login; neither id reveals a secret.
    Column("key_id", exact_text(LONGEST_SUBJECT), nullable=False),
    Column("role", exact_text(16), nullable=False),
    # Client address of the login.
    Column("address", exact_text(LONGEST_SUBJECT), nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    # After this time a later login removes the row.
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "expires_at"),
    **TABLE_OPTIONS,
)
"""One row per login of a browser. For listing only: the signed cookie is the session."""

revoked_sessions = Table(
    "revoked_sessions",
    metadata,
    # The id of a session; the id of a key, for all its sessions; or `*`, for all sessions.
    Column("subject", exact_text(LONGEST_SUBJECT), primary_key=True),
    # Sessions opened later are not revoked.
    Column("opened_until", UtcDateTime, nullable=False),
    # By then all these sessions have expired, and the row is removed.
    Column("expires_at", UtcDateTime, nullable=False),
    Index(None, "expires_at"),
    **TABLE_OPTIONS,
)
"""One row per revocation: of one session, of all sessions of a key, or of all sessions."""


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


log = get_logger(__name__)

MOST_LISTED = 1000
_WITHIN_S = 2.0
_AWAY_FOR_S = 5.0
"""After a failure, requests that only read do not query the database for this long."""
_MOST_REMEMBERED = 10_000


class SessionRegistry:
    """The sessions of an installation. `lasts` is the maximum duration of a session."""

    def __init__(self, database: Database, lasts: timedelta) -> None:
        self._database, self._lasts = database, lasts
        self._revoked: dict[str, None] = {}
        self._asks_again_at = 0.0

    async def record(self, session: OpenSession) -> None:
        """Store a session that was opened; skipped with a warning while the database is unavailable."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._database.transaction(record, session)
        except (Unavailable, ServerRefused, TimeoutError) as error:
            log.warning("http.session_unlisted", key_id=session.key_id, error=str(error) or "no answer in time")

    async def listed(self) -> Sequence[OpenSession]:
        """Open sessions, newest first."""
        return await self._database.read(listed, MOST_LISTED)

    async def revoke(self, subject: str | None = None) -> None:
        """Revoke one session by its id, all sessions of a key by the key's id, or all sessions."""
        if subject is not None and (len(subject) > LONGEST_SUBJECT or subject == EVERY_SESSION):
            raise InvalidArgument("session", subject[:LONGEST_SUBJECT], "must be the id of a session or of a key")
        chosen = EVERY_SESSION if subject is None else require_name("session", subject)
        # The session may have been opened by a process with a clock ahead of this one.
        expires_at = self._database.clock.now() + self._lasts + timedelta(milliseconds=AHEAD_MS)
        await self._database.transaction(revoke, chosen, expires_at)
        log.info("http.sessions_revoked", subject=chosen)

    async def is_revoked(self, caller: "HttpCaller", *, only_reads: bool) -> bool:
        """Whether the session of a caller was revoked.

        Raises `Unavailable` if the database cannot be queried, unless the caller `only_reads`.
        """
        session_id, key_id, opened_ms = caller.session_id or "", caller.key_id or "", caller.opened_ms or 0
        # A revocation is final, so it is remembered and needs no query.
        if session_id in self._revoked:
            return True
        # While the database is unavailable, reads are not delayed by its time limit again and again.
        if only_reads and monotonic() < self._asks_again_at:
            return False
        try:
            async with asyncio.timeout(_WITHIN_S):
                found = await self._database.read(is_revoked, session_id, key_id, from_ms(opened_ms))
        except (Unavailable, ServerRefused, TimeoutError):
            self._asks_again_at = monotonic() + _AWAY_FOR_S
            if only_reads:
                return False
            raise
        if found:
            self._revoked[session_id] = None
            if len(self._revoked) > _MOST_REMEMBERED:
                del self._revoked[next(iter(self._revoked))]
        return found


def session_rules(database: Database) -> list[RetentionRule]:
    """Rules for sessions and for revocations."""
    return [
        TableRule(database, table, timedelta(), lambda now, table=table: [table.c.expires_at < now])
        for table in (revoked_sessions, http_sessions)
    ]
