"""Lists and revokes sessions in SQL. A revocation takes effect in every process with its next request.

While the database is unavailable, sessions can be opened but are not listed, and a session that this process does not
know as revoked can read but change nothing.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

from tidegate.core.arguments import require_name
from tidegate.core.clock import from_ms
from tidegate.core.errors import InvalidArgument, ServerRefused, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.http import session_records as records
from tidegate.http.callers import HttpCaller
from tidegate.http.session_records import EVERY_SESSION, OpenSession
from tidegate.http.session_tables import LONGEST_SUBJECT
from tidegate.http.sessions import AHEAD_MS
from tidegate.storage.sql import Database

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
                await self._database.transaction(records.record, session)
        except (Unavailable, ServerRefused, TimeoutError) as error:
            log.warning("http.session_unlisted", key_id=session.key_id, error=str(error) or "no answer in time")

    async def listed(self) -> Sequence[OpenSession]:
        """Open sessions, newest first."""
        return await self._database.read(records.listed, MOST_LISTED)

    async def revoke(self, subject: str | None = None) -> None:
        """Revoke one session by its id, all sessions of a key by the key's id, or all sessions."""
        if subject is not None and (len(subject) > LONGEST_SUBJECT or subject == EVERY_SESSION):
            raise InvalidArgument("session", subject[:LONGEST_SUBJECT], "must be the id of a session or of a key")
        chosen = EVERY_SESSION if subject is None else require_name("session", subject)
        # The session may have been opened by a process with a clock ahead of this one.
        expires_at = self._database.clock.now() + self._lasts + timedelta(milliseconds=AHEAD_MS)
        await self._database.transaction(records.revoke, chosen, expires_at)
        log.info("http.sessions_revoked", subject=chosen)

    async def is_revoked(self, caller: HttpCaller, *, only_reads: bool) -> bool:
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
                found = await self._database.read(records.is_revoked, session_id, key_id, from_ms(opened_ms))
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
