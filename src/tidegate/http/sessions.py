"""Browser sessions: a signed cookie instead of an API key, and a registry in SQL that lists and revokes sessions.

Every process with the same settings accepts the cookie, also after a restart; reading works even while Valkey or the
database is unavailable. The cookie is signed with a secret derived from the key of the login: if a key is removed from
the settings, its sessions end, and a session has the role that its key has now.

A revocation takes effect in every process with its next request. While the database is unavailable, sessions can be
opened but are not listed, and a session that this process does not know as revoked can read but change nothing. Rows
expire with their sessions. Each write removes some expired rows.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic

import msgspec
from sqlalchemy import Column, Index, Table, delete, exists, func, literal, or_, select

from tidegate.core.arguments import require_name
from tidegate.core.clock import Clock, SystemClock, from_ms, milliseconds, to_ms
from tidegate.core.errors import InvalidArgument, ServerRefused, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.http.callers import ApiKey, AuthenticationMethod, HttpCaller, Keyring
from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata

COOKIE = "tidegate_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Name over TLS. Browsers guarantee that no other host of the domain has set a cookie with this prefix."""
_LONGEST = 512
_NONCE_BYTES = 16
AHEAD_MS = 60_000
"""Tolerated clock difference to the process that opened a session."""


class _Session(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    key_id: str
    issued_ms: int
    expires_ms: int
    nonce: str


class SessionManager:
    """Signs session cookies and verifies them."""

    def __init__(self, keyring: Keyring, lasts: timedelta, clock: Clock | None = None) -> None:
        self._keyring, self._lasts_ms, self._clock = keyring, milliseconds(lasts), clock or SystemClock()

    def open(self, key: ApiKey) -> tuple[str, HttpCaller]:
        """Open a session for a key. Returns the value of the cookie, and the caller of requests that send it."""
        now = to_ms(self._clock.now())
        session = _Session(key.id, now, now + self._lasts_ms, secrets.token_hex(_NONCE_BYTES))
        said = msgspec.json.encode(session)
        token = f"{_text(said)}.{_text(_sign(key, b'cookie', said))}"
        return token, self._caller(key, said, session, session.expires_ms)

    def read(self, token: str) -> HttpCaller | None:
        """The caller of a session; None if the cookie is invalid or expired, or its key was removed."""
        said, signature = _parts(token)
        # Decoded before the signature is verified, since the key id in it selects the key. Nothing
        # else of it is used before.
        session = _decoded(said)
        key = None if session is None else self._keyring.by_id(session.key_id)
        if session is None or key is None or not hmac.compare_digest(_sign(key, b"cookie", said), signature):
            return None
        # A shorter `session_lasts` also applies to sessions that are already open.
        now, until_ms = to_ms(self._clock.now()), min(session.expires_ms, session.issued_ms + self._lasts_ms)
        # A session from the future was signed with a clock that is wrong by more than the tolerance.
        if now >= until_ms or now + AHEAD_MS < session.issued_ms:
            return None
        return self._caller(key, said, session, until_ms)

    def _caller(self, key: ApiKey, said: bytes, session: _Session, until_ms: int) -> HttpCaller:
        return HttpCaller(
            key.role,
            AuthenticationMethod.SESSION,
            key_id=key.id,
            csrf=_text(_sign(key, b"csrf", said)),
            until_ms=until_ms,
            session_id=session.nonce,
            opened_ms=session.issued_ms,
        )

    def cookie(self, token: str, *, is_secure: bool) -> str:
        """A `Set-Cookie` header that stores a session, or removes it if `token` is empty."""
        # `SameSite=Strict`: the cookie is not sent with requests that begin on other sites, also not by a link.
        kept_s = self._lasts_ms // 1000 if token else 0
        name, secure = (SECURE_COOKIE, "; Secure") if is_secure else (COOKIE, "")
        return f"{name}={token}; Path=/; Max-Age={kept_s}; HttpOnly; SameSite=Strict{secure}"


def find_token(cookies: str, *, is_secure: bool) -> str | None:
    """The session cookie of a request; None if there is none, or more than one.

    Two cookies of the same name were set for different domains or paths, and one of them may be forged.
    """
    name = f"{SECURE_COOKIE if is_secure else COOKIE}="
    if name not in cookies:
        return None
    found = [each.strip() for each in cookies.split(";")]
    tokens = [each.removeprefix(name) for each in found if each.startswith(name)]
    return tokens[0] if len(tokens) == 1 else None


def _sign(key: ApiKey, purpose: bytes, said: bytes) -> bytes:
    # The purpose separates the signature of the cookie from the CSRF token, which is derived from the same text.
    return hmac.digest(key.secret, purpose + b"/" + said, hashlib.sha256)


def _parts(token: str) -> tuple[bytes, bytes]:
    body, _, signature = token.partition(".")
    try:
        return (b"", b"") if len(token) > _LONGEST else (_decode_canonical(body), _decode_canonical(signature))
    except (ValueError, binascii.Error):
        return b"", b""


def _decoded(said: bytes) -> _Session | None:
    try:
        return msgspec.json.decode(said, type=_Session)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _decode_canonical(text: str) -> bytes:
    """Decode base64. Raises `ValueError` for a text that is not the canonical encoding of its bytes."""
    value = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    if _text(value) != text:
        raise ValueError
    return value


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
