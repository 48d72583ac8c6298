"""Who came: by which key, in which role, and how."""

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
"""Where the scope of a request tells who came."""
REQUEST_ID = "tidegate.request_id"
"""Where it tells the name of the request in the log."""
LONGEST_PATH = 200
"""An address is logged up to this length."""
CSRF_HEADER = "X-Tidegate-CSRF"
_SALT = b"tidegate/keys/1"
_COST = {"n": 2**14, "r": 8, "p": 1}
_ID_LENGTH = 12


class Role(Enum):
    """What a caller may do. Whoever may operate may read too."""

    READ = "read"
    OPERATE = "operate"

    def includes(self, needed: "Role") -> bool:
        """Whether this is enough where `needed` is asked for."""
        return self is Role.OPERATE or needed is Role.READ


class AuthenticationMethod(Enum):
    """What a caller showed."""

    KEY = "key"
    SESSION = "session"
    LOOPBACK = "loopback"
    """Nothing: he is on this machine, and no key is set."""
    OPEN = "open"
    """Nothing, and he wants nothing for which anything would have to be shown."""


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """Who came, as far as he showed it."""

    role: Role | None
    """None: nobody in particular, who gets what everybody gets."""
    how: AuthenticationMethod
    key_id: str | None = None
    """Tells keys apart in the log, and tells nothing of them."""
    csrf: str | None = field(default=None, repr=False)
    """What his page must send along with everything that changes something, where he came with a session."""
    until_ms: int | None = None
    """When his session ends."""
    session_id: str | None = None
    opened_ms: int | None = None
    """When the session was opened."""

    def require(self, needed: Role) -> None:
        """Raise `RequestFailed` where he may not do what needs this role."""
        if self.role is None or not self.role.includes(needed):
            has = "nobody" if self.role is None else self.role.value
            detail = f"this needs the role {needed.value}, and the key has the role {has}"
            raise RequestFailed(ProblemType.ROLE_NEEDED, detail)

    def require_own_page(self, csrf: str | None) -> None:
        """Raise `RequestFailed` if the caller has a session and the request does not have its CSRF token.

        A browser sends the cookie of a session for any page; `csrf` only our own page knows.
        """
        if self.csrf is None:
            return
        if csrf is None or not hmac.compare_digest(self.csrf.encode(), csrf.encode("latin-1", "replace")):
            detail = "it is not that of this session" if csrf else "it is missing"
            raise RequestFailed(ProblemType.CSRF_NEEDED, f"{CSRF_HEADER}: {detail}")


LOOPBACK = HttpCaller(Role.OPERATE, AuthenticationMethod.LOOPBACK)
NOBODY = HttpCaller(None, AuthenticationMethod.OPEN)


def caller_of(request: HttpRequest) -> HttpCaller:
    """The caller of a request that was admitted."""
    return caller_in(request.scope)


def caller_in(scope: Scope) -> HttpCaller:
    """The same, of the scope of a request."""
    found = scope.get(CALLER, NOBODY)
    assert isinstance(found, HttpCaller)
    return found


def authorise(scope: Scope, needed: Role | None, *, is_logged: bool) -> None:
    """Raise `RequestFailed` if the caller lacks the needed role; None: no role is needed. Log it if wanted."""
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
    """A key that is good, without the key."""

    id: str
    role: Role
    digest: bytes = field(repr=False)
    """What is compared."""
    secret: bytes = field(repr=False)
    """What its sessions are signed with."""
    bearer: HttpCaller
    """Whoever sends it."""


class Keyring:
    """Every key that the settings name."""

    def __init__(self, settings: HttpSettings) -> None:
        roles = dict.fromkeys(settings.keys_to_read, Role.READ) | dict.fromkeys(settings.keys_to_operate, Role.OPERATE)
        self._keys = [_known(text, role) for text, role in roles.items()]
        self._by_id = {key.id: key for key in self._keys}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def keys(self) -> Sequence[ApiKey]:
        """All of them."""
        return self._keys

    def find(self, text: str) -> ApiKey | None:
        """The key that somebody showed; None where it is none of ours."""
        given = _digest(text.encode("latin-1", "replace"))
        # Every key is compared, in a time that does not tell how much of one was right.
        fits = [key for key in self._keys if hmac.compare_digest(given, key.digest)]
        return fits[0] if fits else None

    def by_id(self, key_id: str) -> ApiKey | None:
        """The key that goes by this id."""
        return self._by_id.get(key_id)


def _known(text: str, role: Role) -> ApiKey:
    secret = _secret_of(text)
    found = hmac.digest(secret, b"tidegate/key-id", hashlib.sha256).hex()[:_ID_LENGTH]
    signing = hmac.digest(secret, b"tidegate/session", hashlib.sha256)
    return ApiKey(found, role, _digest(text.encode()), signing, HttpCaller(role, AuthenticationMethod.KEY, found))


@lru_cache(maxsize=64)
def _secret_of(text: str) -> bytes:
    """A secret that is the same in every process that knows the key.

    What hangs on it leaves the house, in cookies and in the log. It is slow on purpose: whoever gets hold of that, and
    guesses at a key that somebody made up instead of drawing it, pays this price for each guess.
    """
    return hashlib.scrypt(text.encode(), salt=_SALT, **_COST)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
