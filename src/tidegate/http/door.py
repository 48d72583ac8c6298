"""Who may come in: by key, and without one only whoever is on this machine and is no web page of somebody else's.

A browser sends requests for any page that it shows. Three rules keep such pages out, also where no key is set:

- *rebinding*: a page whose name suddenly points at 127.0.0.1 sends that name as `Host`, which is refused;
- *forgery*: a page can send forms and plain text without asking, but not JSON, and nothing else is taken;
- *forgery without a body*: browsers put the page's `Origin` on it, and one that is not ours is refused.
"""

import hmac
from collections.abc import Collection
from hashlib import sha256
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.routing import compile_path

from tidegate.http.problems import ProblemType, Trouble
from tidegate.settings.http import HttpSettings

_HARMLESS = ("GET", "HEAD")
_OURSELVES = ("same-origin", "none")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="tidegate"'}


class Door:
    """Lets a request in, or raises `Trouble`. `open_paths` need no key; they may have parameters, as routes have."""

    def __init__(self, settings: HttpSettings, open_paths: Collection[str]) -> None:
        self._keys = [sha256(key.encode()).digest() for key in settings.keys]
        self._names = {name.lower() for name in settings.allowed_hosts}
        self._open_paths = frozenset(path for path in open_paths if "{" not in path)
        self._open_patterns = [compile_path(path)[0] for path in open_paths if "{" in path]

    def admit(self, method: str, path: str, headers: Headers) -> None:
        """Say nothing, or say no."""
        host = headers.get("host", "")
        if not self._keys and not self._is_ours(host):
            raise Trouble(ProblemType.FOREIGN_HOST, f"it was called {host[:80]!r}")
        if method not in _HARMLESS:
            _refuse_foreign_pages(host, headers)
        if self._keys and not self._is_open(path):
            self._require_key(headers.get("authorization", ""))

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or any(pattern.match(path) for pattern in self._open_patterns)

    def _is_ours(self, host: str) -> bool:
        name = without_port(host).lower()
        return name in self._names or is_loopback(name)

    def _require_key(self, authorization: str) -> None:
        scheme, _, key = authorization.partition(" ")
        given = sha256(key.strip().encode("latin-1", "replace")).digest()
        # Every key is compared, in a time that does not tell how much of one was right.
        fits = [hmac.compare_digest(given, known) for known in self._keys]
        if scheme.lower() != "bearer" or not any(fits):
            detail = "the key is not one of ours" if authorization else "there is no Authorization header"
            raise Trouble(ProblemType.KEY_NEEDED, detail, headers=_CHALLENGE)


def _refuse_foreign_pages(host: str, headers: Headers) -> None:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if site not in _OURSELVES or (origin is not None and origin.partition("://")[2].lower() != host.lower()):
        raise Trouble(ProblemType.FOREIGN_ORIGIN, f"its origin is {(origin or site)[:80]!r}")


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
