"""Authenticates requests by API key or session. Without keys, only clients on this machine are admitted.

A browser sends requests on behalf of any page that it shows. These rules protect against pages of other sites. They
apply whether or not a key is set, unless they say otherwise:

- *DNS rebinding*: a page that makes its own name resolve to 127.0.0.1 sends that name as `Host`, which is refused;
- *cross-site requests with a body*: a page can send forms and plain text to any site, but not JSON without a preflight
  request. Other content types than JSON are refused;
- *cross-site requests without a body*: browsers add the `Origin` of the page; a foreign origin is refused;
- *cross-site reads without a key*: refused, although the page could not read the answer; following a link is allowed;
- *cross-site requests with a session*: browsers send the session cookie. It is ignored if the browser reports another
  origin (another port of this host is another origin). A request that changes something must send the session's CSRF
  token.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address

from litestar.datastructures import Headers

from tidegate.http.access import Access
from tidegate.http.asgi import speaks_tls
from tidegate.http.callers import ANONYMOUS, CSRF_HEADER, LOOPBACK, ApiKey, AuthenticationMethod, HttpCaller
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.sessions import COOKIE, find_token

HARMLESS = ("GET", "HEAD")
_OURSELVES = ("same-origin", "none")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tidegate"'}


class Authenticator:
    """Admits requests or raises `RequestFailed`. `open_paths` need no key and may have parameters, as routes do."""

    def __init__(self, access: Access, open_paths: Collection[str]) -> None:
        self._access = access
        self._names = {name.lower() for name in access.settings.allowed_hosts}
        self._open_paths = frozenset(path for path in open_paths if "{" not in path)
        self._open_patterns = [pattern_of(path) for path in open_paths if "{" in path]

    async def admit(
        self, method: str, path: str, headers: Headers, scheme: str = "http", peer: str | None = None
    ) -> HttpCaller:
        """Return the caller of a request, or raise `RequestFailed`. `peer` is the address that connected.

        Endpoints check the caller's role themselves.
        """
        text = _bearer(headers)
        if text is None or not self._access.keyring:
            return await self._unless_revoked(method, path, headers, self._decide(method, path, headers, scheme, None))
        _refuse_forgery(method, headers)
        try:
            # Only after the check of the origin: a page of another site must not use up the attempts of this address.
            key = await self._access.find(text, self._address(headers, peer))
        except RequestFailed:
            if not self._is_open(path):
                raise
            key = None
        return self._decide(method, path, headers, scheme, key)

    def admit_without_io(self, method: str, path: str, headers: Headers, peer: str | None = None) -> HttpCaller:
        """Like `admit`, without I/O. Raises `RequestFailed` also if only `admit` can identify the caller."""
        text = _bearer(headers)
        # `admit` uses the scheme to choose the cookie; here sessions are refused in any case.
        key = None if text is None else self._access.find_at_once(text, self._address(headers, peer))
        caller = self._decide(method, path, headers, "http", key)
        if caller.how is AuthenticationMethod.SESSION:  # only the database knows whether it was revoked
            raise unauthenticated(headers)
        return caller

    async def _unless_revoked(self, method: str, path: str, headers: Headers, caller: HttpCaller) -> HttpCaller:
        if not await self._access.is_revoked(caller, only_reads=method in HARMLESS):
            return caller
        if self._is_open(path):
            return ANONYMOUS
        raise unauthenticated(headers, "the session was revoked; log in again")

    def _decide(self, method: str, path: str, headers: Headers, scheme: str, key: ApiKey | None) -> HttpCaller:
        if not self._access.keyring:
            return self._admit_neighbour(method, path, headers)
        _refuse_forgery(method, headers)
        caller = key.bearer if key is not None else self._session(headers, scheme)
        # A read with a valid key or session needs no further check.
        if caller is None or method not in HARMLESS:
            if self._is_open(path):
                return caller or ANONYMOUS
            if caller is None:
                raise unauthenticated(headers)
            caller.require_own_page(headers.get(CSRF_HEADER))
        return caller

    def _address(self, headers: Headers, peer: str | None) -> str:
        addresses = self._access.addresses
        return addresses.of(peer, ",".join(headers.getall("x-forwarded-for", [])) if addresses.are_forwarded else "")

    def _admit_neighbour(self, method: str, path: str, headers: Headers) -> HttpCaller:
        """Admit a client on this machine; no key is set."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise RequestFailed(ProblemType.FOREIGN_HOST, f"the Host header is {host[:80]!r}")
        if method not in HARMLESS or not (_is_of_our_page(headers) or _is_a_link(headers) or self._is_open(path)):
            _refuse_foreign_pages(headers)
        return LOOPBACK

    def _session(self, headers: Headers, scheme: str) -> HttpCaller | None:
        """The caller of a session; None if there is none or a key was sent: a key takes precedence, even a wrong one.

        Other authorization schemes are ignored, because they are meant for a proxy.
        """
        cookies = headers.get("cookie")
        # The cookie is ignored and not refused, so that a link from another site shows the login page.
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
    """A pattern that matches the paths of a route: `{name}` matches no slash, `{name:path}` matches slashes."""
    parts = re.split(r"{(\w+(?::path)?)}", route)
    return re.compile(
        "".join(
            (f"(?P<{part.partition(':')[0]}>{'.+' if ':' in part else '[^/]+'})" if n % 2 else re.escape(part))
            for n, part in enumerate(parts)
        )
    )


def unauthenticated(headers: Headers, detail: str | None = None) -> RequestFailed:
    """The problem for a request without a valid key or session."""
    return RequestFailed(ProblemType.KEY_NEEDED, detail or _why_unauthenticated(headers), headers=_CHALLENGE)


def _why_unauthenticated(headers: Headers) -> str:
    if headers.get("authorization", "").lower().startswith("bearer "):
        return "the key is not known"
    if f"{COOKIE}=" in headers.get("cookie", ""):
        return "the session has expired or is not valid; log in again"
    return "the request has neither a key nor a session"


def _bearer(headers: Headers) -> str | None:
    """The key of a request; None if it has none."""
    kind, _, text = headers.get("authorization", "").partition(" ")
    return text.strip() if kind.lower() == "bearer" else None


def _refuse_forgery(method: str, headers: Headers) -> None:
    if method not in HARMLESS:
        _refuse_foreign_pages(headers)


def _is_of_our_page(headers: Headers) -> bool:
    """Whether no header reports another page as the sender. Older browsers and other clients send no such header."""
    return headers.get("sec-fetch-site", "none") in _OURSELVES


def _is_a_link(headers: Headers) -> bool:
    return headers.get("sec-fetch-mode") == "navigate"


def _refuse_foreign_pages(headers: Headers) -> None:
    origin, host = headers.get("origin"), headers.get("host", "")
    # Two headers: newer browsers send `Sec-Fetch-Site`, all of them send `Origin` with requests that change something.
    if not _is_of_our_page(headers) or (origin is not None and origin.partition("://")[2].lower() != host.lower()):
        claimed_origin = origin or headers.get("sec-fetch-site", "")
        raise RequestFailed(ProblemType.FOREIGN_ORIGIN, f"the Origin header is {claimed_origin[:80]!r}")


def without_port(host: str) -> str:
    """The name or address in a `Host` header: `::1` for `[::1]:80`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_loopback(name: str) -> bool:
    """Whether a name or an address is a loopback name or address."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
