"""Sessions: what a browser keeps instead of a key.

A session is a signed text in a cookie. So every process with the same settings takes it, also after a restart, and to
look also while Valkey or the database is away. `SessionRegistry` lists sessions and revokes them. It is signed
with a secret made from the key that opened it: a key that is taken out of the settings takes its sessions with it, and
what a session may do is what its key may do now.
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

COOKIE = "tidegate_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Where TLS is spoken. Of a cookie with this prefix a browser guarantees that no other name of the domain set it."""
_LONGEST = 512
_NONCE_BYTES = 16
AHEAD_MS = 60_000
"""So much later than ours the clock may be of the process that opened a session."""


class _Session(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    key_id: str
    issued_ms: int
    expires_ms: int
    nonce: str


class SessionManager:
    """Opens sessions and reads them."""

    def __init__(self, keyring: Keyring, lasts: timedelta, clock: Clock | None = None) -> None:
        self._keyring, self._lasts_ms, self._clock = keyring, milliseconds(lasts), clock or SystemClock()

    def open(self, key: ApiKey) -> tuple[str, HttpCaller]:
        """A session of somebody who showed this key: what his browser keeps, and who he is from now on."""
        now = to_ms(self._clock.now())
        session = _Session(key.id, now, now + self._lasts_ms, secrets.token_hex(_NONCE_BYTES))
        said = msgspec.json.encode(session)
        token = f"{_text(said)}.{_text(_sign(key, b'cookie', said))}"
        return token, self._caller(key, said, session, session.expires_ms)

    def read(self, token: str) -> HttpCaller | None:
        """Whose session it is; None where it is none of ours, or its time is over, or its key is."""
        said, signature = _parts(token)
        session = _decoded(said)
        key = None if session is None else self._keyring.by_id(session.key_id)
        if session is None or key is None or not hmac.compare_digest(_sign(key, b"cookie", said), signature):
            return None
        # Whoever shortens sessions means those that are open, too.
        now, until_ms = to_ms(self._clock.now()), min(session.expires_ms, session.issued_ms + self._lasts_ms)
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
        """A header that has a browser keep a session; an empty one is forgotten."""
        kept_s = self._lasts_ms // 1000 if token else 0
        name, secure = (SECURE_COOKIE, "; Secure") if is_secure else (COOKIE, "")
        return f"{name}={token}; Path=/; Max-Age={kept_s}; HttpOnly; SameSite=Strict{secure}"


def find_token(cookies: str, *, is_secure: bool) -> str | None:
    """The session among the cookies of a request; None where there is none, or more than one.

    Two of the same name come from two who set them, and nobody can tell which of them was us.
    """
    name = f"{SECURE_COOKIE if is_secure else COOKIE}="
    if name not in cookies:
        return None
    found = [each.strip() for each in cookies.split(";")]
    tokens = [each.removeprefix(name) for each in found if each.startswith(name)]
    return tokens[0] if len(tokens) == 1 else None


def _sign(key: ApiKey, purpose: bytes, said: bytes) -> bytes:
    return hmac.digest(key.secret, purpose + b"/" + said, hashlib.sha256)


def _parts(token: str) -> tuple[bytes, bytes]:
    body, _, signature = token.partition(".")
    try:
        return (b"", b"") if len(token) > _LONGEST else (_bytes(body), _bytes(signature))
    except (ValueError, binascii.Error):
        return b"", b""


def _decoded(said: bytes) -> _Session | None:
    try:
        return msgspec.json.decode(said, type=_Session)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """The bytes of a text that has exactly one spelling."""
    value = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    if _text(value) != text:
        raise ValueError
    return value
