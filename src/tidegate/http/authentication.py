"""Who may come in: by key or by session, and without either only whoever is on this machine and is no web page of
somebody else's.

A browser sends requests for any page that it shows. These rules keep such pages out, also where no key is set:

- *rebinding*: a page whose name suddenly points at 127.0.0.1 sends that name as `Host`, which is refused;
- *forgery*: a page can send forms and plain text without asking, but not JSON, and nothing else is taken;
- *forgery without a body*: browsers put the page's `Origin` on it, and one that is not ours is refused;
- *asking*: without a key, a page of another site does not even get to ask, though it could not read the answer; a link
  to us is followed;
- *forgery with a session*: browsers send its cookie along. It does not count where they say that another page asks,
  also one of another port of this host, and what changes something must come with what only our page was told.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address

from litestar.datastructures import Headers

from tidegate.http.access import Access
from tidegate.http.callers import CSRF_HEADER, LOOPBACK, NOBODY, ApiKey, AuthenticationMethod, HttpCaller
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.remote import speaks_tls
from tidegate.http.sessions import COOKIE, find_token

HARMLESS = ("GET", "HEAD")
_OURSELVES = ("same-origin", "none")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tidegate"'}


class Authenticator:
    """Admits a request or raises `RequestFailed`. `open_paths` need no key and may have parameters, as routes have."""

    def __init__(self, access: Access, open_paths: Collection[str]) -> None:
        self._access = access
        self._names = {name.lower() for name in access.settings.allowed_hosts}
        self._open_paths = frozenset(path for path in open_paths if "{" not in path)
        self._open_patterns = [pattern_of(path) for path in open_paths if "{" in path]

    async def admit(
        self, method: str, path: str, headers: Headers, scheme: str = "http", peer: str | None = None
    ) -> HttpCaller:
        """Say who came, or raise `RequestFailed`. `peer` is the address that connected.

        What a caller may do is decided by the endpoint.
        """
        text = _bearer(headers)
        if text is None or not self._access.keyring:
            return await self._unless_revoked(method, path, headers, self._decide(method, path, headers, scheme, None))
        _refuse_forgery(method, headers)
        try:
            key = await self._access.find(text, self._address(headers, peer))
        except RequestFailed:
            if not self._is_open(path):
                raise
            key = None
        return self._decide(method, path, headers, scheme, key)

    def admit_at_once(self, method: str, path: str, headers: Headers, peer: str | None = None) -> HttpCaller:
        """The same without waiting. Raises `RequestFailed` also where only `admit` can say who came."""
        text = _bearer(headers)
        key = None if text is None else self._access.find_at_once(text, self._address(headers, peer))
        caller = self._decide(method, path, headers, "http", key)
        if caller.how is AuthenticationMethod.SESSION:  # whether it was revoked is known to the database
            raise stranger(headers)
        return caller

    async def _unless_revoked(self, method: str, path: str, headers: Headers, caller: HttpCaller) -> HttpCaller:
        if not await self._access.is_revoked(caller, only_reads=method in HARMLESS):
            return caller
        if self._is_open(path):
            return NOBODY
        raise stranger(headers, "the session was revoked; log in again")

    def _decide(self, method: str, path: str, headers: Headers, scheme: str, key: ApiKey | None) -> HttpCaller:
        if not self._access.keyring:
            return self._admit_neighbour(method, path, headers)
        _refuse_forgery(method, headers)
        caller = key.bearer if key is not None else self._session(headers, scheme)
        if caller is None or method not in HARMLESS:
            if self._is_open(path):
                return caller or NOBODY
            if caller is None:
                raise stranger(headers)
            caller.require_own_page(headers.get(CSRF_HEADER))
        return caller

    def _address(self, headers: Headers, peer: str | None) -> str:
        addresses = self._access.addresses
        return addresses.of(peer, ",".join(headers.getall("x-forwarded-for", [])) if addresses.are_forwarded else "")

    def _admit_neighbour(self, method: str, path: str, headers: Headers) -> HttpCaller:
        """Somebody on this machine, where no key is set."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise RequestFailed(ProblemType.FOREIGN_HOST, f"it was called {host[:80]!r}")
        if method not in HARMLESS or not (_is_of_our_page(headers) or _is_a_link(headers) or self._is_open(path)):
            _refuse_foreign_pages(headers)
        return LOOPBACK

    def _session(self, headers: Headers, scheme: str) -> HttpCaller | None:
        """The owner of a session. A key that is sent counts instead of it, also a wrong one.

        Another kind of authorization was meant for a server before us.
        """
        cookies = headers.get("cookie")
        if cookies is None or not _is_of_our_page(headers) or _bearer(headers) is not None:
            return None
        token = find_token(cookies, is_secure=speaks_tls(scheme, headers))
        return None if token is None else self._access.sessions.read(token)

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or any(pattern.fullmatch(path) for pattern in self._open_patterns)

    def _is_ours(self, host: str) -> bool:
        name = without_port(host).lower()
        return name in self._names or is_loopback(name)


def pattern_of(route: str) -> re.Pattern[str]:
    """What addresses of a route look like: `{name}` is a part without a slash, `{name:path}` may have some."""
    parts = re.split(r"{(\w+(?::path)?)}", route)
    return re.compile(
        "".join(
            (f"(?P<{part.partition(':')[0]}>{'.+' if ':' in part else '[^/]+'})" if n % 2 else re.escape(part))
            for n, part in enumerate(parts)
        )
    )


def stranger(headers: Headers, detail: str | None = None) -> RequestFailed:
    """What somebody is told who showed nothing, or nothing good."""
    return RequestFailed(ProblemType.KEY_NEEDED, detail or _what_is_wrong(headers), headers=_CHALLENGE)


def _what_is_wrong(headers: Headers) -> str:
    if headers.get("authorization", "").lower().startswith("bearer "):
        return "the key is not one of ours"
    if f"{COOKIE}=" in headers.get("cookie", ""):
        return "the session is over, or not one of ours; log in again"
    return "there is neither a key nor a session"


def _bearer(headers: Headers) -> str | None:
    """The key that a request shows; None where it shows none."""
    kind, _, text = headers.get("authorization", "").partition(" ")
    return text.strip() if kind.lower() == "bearer" else None


def _refuse_forgery(method: str, headers: Headers) -> None:
    if method not in HARMLESS:
        _refuse_foreign_pages(headers)


def _is_of_our_page(headers: Headers) -> bool:
    """Whether no browser says that another page asks. Older browsers, and all that are none, say nothing."""
    return headers.get("sec-fetch-site", "none") in _OURSELVES


def _is_a_link(headers: Headers) -> bool:
    return headers.get("sec-fetch-mode") == "navigate"


def _refuse_foreign_pages(headers: Headers) -> None:
    origin, host = headers.get("origin"), headers.get("host", "")
    if not _is_of_our_page(headers) or (origin is not None and origin.partition("://")[2].lower() != host.lower()):
        told = origin or headers.get("sec-fetch-site", "")
        raise RequestFailed(ProblemType.FOREIGN_ORIGIN, f"its origin is {told[:80]!r}")


def without_port(host: str) -> str:
    """The name or address of a `Host`: `[::1]:80` is `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_loopback(name: str) -> bool:
    """Whether a name or an address is that of this machine alone."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
