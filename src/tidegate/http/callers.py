"""Callers of requests, their roles, and the API keys that identify them."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from tidegate.core.telemetry.logs import get_logger
from tidegate.http.asgi import HttpRequest, Scope
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.settings import HttpSettings

log = get_logger(__name__)

CALLER = "tidegate.caller"
"""The key of the `Caller` in the scope of a request."""
REQUEST_ID = "tidegate.request_id"
"""The key of the request's id in its scope; the log has the same id."""
LONGEST_PATH = 200
"""An address is logged up to this length."""
CSRF_HEADER = "X-Tidegate-CSRF"
_SALT = b"tidegate/keys/1"
_COST = {"n": 2**14, "r": 8, "p": 1}
_ID_LENGTH = 12


class Role(Enum):
    """What a caller may do. `operate` includes `read`."""

    READ = "read"
    OPERATE = "operate"

    def includes(self, needed: "Role") -> bool:
        """Whether this role has all rights of the role `needed`."""
        return self is Role.OPERATE or needed is Role.READ


class AuthenticationMethod(Enum):
    """How a caller was authenticated."""

    KEY = "key"
    SESSION = "session"
    LOOPBACK = "loopback"
    """Not authenticated: the client is on this machine, and no key is set."""
    OPEN = "open"
    """Not authenticated: the path is open to all."""


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """The caller of a request, and how it was authenticated."""

    role: Role | None
    """None: an anonymous caller, for open paths only."""
    how: AuthenticationMethod
    key_id: str | None = None
    """Identifies the key in the log without revealing it."""
    csrf: str | None = field(default=None, repr=False)
    """The session's CSRF token, which requests that change something must send; None without a session."""
    until_ms: int | None = None
    """When the session ends."""
    session_id: str | None = None
    opened_ms: int | None = None
    """When the session was opened."""

    def require(self, needed: Role) -> None:
        """Raise `RequestFailed` if the caller does not have this role."""
        if self.role is None or not self.role.includes(needed):
            has = "none" if self.role is None else self.role.value
            detail = f"this needs the role {needed.value}, and the key has the role {has}"
            raise RequestFailed(ProblemType.ROLE_NEEDED, detail)

    def require_own_page(self, csrf: str | None) -> None:
        """Raise `RequestFailed` if the caller has a session and `csrf` is not its token.

        A browser sends the session cookie for any page; only pages of this server can read the token.
        """
        # A caller with a key: other pages cannot send the `Authorization` header.
        if self.csrf is None:
            return
        if csrf is None or not hmac.compare_digest(self.csrf.encode(), csrf.encode("latin-1", "replace")):
            detail = "it does not belong to this session" if csrf else "it is missing"
            raise RequestFailed(ProblemType.CSRF_NEEDED, f"{CSRF_HEADER}: {detail}")


LOOPBACK = HttpCaller(Role.OPERATE, AuthenticationMethod.LOOPBACK)
ANONYMOUS = HttpCaller(None, AuthenticationMethod.OPEN)


def caller_of(request: HttpRequest) -> HttpCaller:
    """The caller of an admitted request."""
    return caller_in(request.scope)


def caller_in(scope: Scope) -> HttpCaller:
    """Like `caller_of`, for the ASGI scope of a request."""
    found = scope.get(CALLER, ANONYMOUS)
    assert isinstance(found, HttpCaller)
    return found


def authorise(scope: Scope, needed: Role | None, *, is_logged: bool) -> None:
    """Raise `RequestFailed` if the caller lacks the needed role; None: no role is needed. Logs it if `is_logged`."""
    if needed is None:
        return
    caller = caller_in(scope)
    caller.require(needed)
    if is_logged:
        log.info(
            "http.acted",
            request_id=scope[REQUEST_ID],
            method=scope["method"],
            path=scope["path"][:LONGEST_PATH],
            role=None if caller.role is None else caller.role.value,
            how=caller.how.value,
            key_id=caller.key_id,
        )


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A valid API key, represented by its digests."""

    id: str
    role: Role
    digest: bytes = field(repr=False)
    """Compared with the digest of a key that was sent."""
    secret: bytes = field(repr=False)
    """The secret with which sessions of this key are signed."""
    bearer: HttpCaller
    """The caller of requests that send this key."""


class Keyring:
    """All API keys of the settings."""

    def __init__(self, settings: HttpSettings) -> None:
        roles = dict.fromkeys(settings.keys_to_read, Role.READ) | dict.fromkeys(settings.keys_to_operate, Role.OPERATE)
        self._keys = [_known(text, role) for text, role in roles.items()]
        self._by_id = {key.id: key for key in self._keys}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def keys(self) -> Sequence[ApiKey]:
        """All keys, first those that may operate."""
        return self._keys

    def find(self, text: str) -> ApiKey | None:
        """The key with this text; None if it is not known."""
        given = _digest(text.encode("latin-1", "replace"))
        # All keys are compared, in constant time, so that the duration reveals nothing about a key.
        fits = [key for key in self._keys if hmac.compare_digest(given, key.digest)]
        return fits[0] if fits else None

    def by_id(self, key_id: str) -> ApiKey | None:
        """The key with this id; None if it is not known."""
        return self._by_id.get(key_id)


def _known(text: str, role: Role) -> ApiKey:
    secret = _secret_of(text)
    found = hmac.digest(secret, b"tidegate/key-id", hashlib.sha256).hex()[:_ID_LENGTH]
    signing = hmac.digest(secret, b"tidegate/session", hashlib.sha256)
    return ApiKey(found, role, _digest(text.encode()), signing, HttpCaller(role, AuthenticationMethod.KEY, found))


@lru_cache(maxsize=64)
def _secret_of(text: str) -> bytes:
    """A secret derived from a key; the same in every process.

    Signatures in cookies and ids in the log are derived from it. The derivation (scrypt) is slow on purpose, so that
    guessing a weak key from a cookie or from the log is expensive.
    """
    return hashlib.scrypt(text.encode(), salt=_SALT, **_COST)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
