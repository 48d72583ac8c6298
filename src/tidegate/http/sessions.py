"""Browser sessions: a signed cookie instead of an API key. `session_store` lists and revokes sessions.

Every process with the same settings accepts the cookie, also after a restart; reading works even while Valkey or the
database is unavailable. The cookie is signed with a secret derived from the key of the login: if a key is removed from
the settings, its sessions end, and a session has the role that its key has now.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from datetime import timedelta

import msgspec

from tidegate.core.clock import Clock, SystemClock, milliseconds, to_ms
from tidegate.http.callers import ApiKey, AuthenticationMethod, HttpCaller, Keyring
from tidegate.http.session_store import AHEAD_MS

COOKIE = "tidegate_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Name over TLS. Browsers guarantee that no other host of the domain has set a cookie with this prefix."""
_LONGEST = 512
_NONCE_BYTES = 16


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
