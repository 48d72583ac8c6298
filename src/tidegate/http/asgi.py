"""ASGI types, headers of requests and answers, and where a request comes from.

The client address limits use; answers depend on whether the browser uses TLS.

The limits are the length of the address, and the size and number of headers. The server refuses an incomplete head that
is longer than `MOST_KEPT`. A head that arrives in one piece is not limited there, so its size is checked here again.

By default an answer is data: browsers must not execute it, frame it, or load it into pages of other sites. Pages set
their own content security policy.
"""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from litestar import Request, Response
from litestar.datastructures import Headers

from tidegate.core.telemetry.logs import get_logger
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.settings import HttpSettings

Scope = Any
"""A mutable mapping. The typed dictionaries of Litestar allow no further keys and differ from those of uvicorn."""
Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Pair = tuple[bytes, bytes]
HttpRequest = Request[Any, Any, Any]
HttpResponse = Response[Any]

IS_HEAD: Final = "tidegate.is_head"
MOST_KEPT: Final = 32 * 1024
_LONGEST_ADDRESS: Final = 8 * 1024
MOST_HEADERS: Final = 100


def headers_of(scope: Scope) -> Headers:
    """The headers of a request."""
    return Headers.from_scope(scope)


def is_for_head(scope: Scope) -> bool:
    """Whether this is a HEAD request, which the application handles as a GET."""
    return scope["method"] == "HEAD" or scope.get(IS_HEAD, False)


def check_head(scope: Scope) -> None:
    """Raise `RequestFailed` if the head is too large or does not have exactly one `Host` header."""
    address = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    if address > _LONGEST_ADDRESS:
        raise RequestFailed(ProblemType.ADDRESS_TOO_LONG, f"the limit is {_LONGEST_ADDRESS:,} bytes", headers=_LAST)
    headers = scope["headers"]
    if len(headers) > MOST_HEADERS:
        raise RequestFailed(ProblemType.HEAD_TOO_LARGE, f"the limit is {MOST_HEADERS} headers", headers=_LAST)
    if sum(len(name) + len(value) for name, value in headers) > MOST_KEPT:
        raise RequestFailed(ProblemType.HEAD_TOO_LARGE, f"the limit is {MOST_KEPT:,} bytes", headers=_LAST)
    # Servers and proxies could choose different ones of several names.
    if scope["http_version"] == "1.1" and sum(name == b"host" for name, _ in headers) != 1:
        raise RequestFailed(ProblemType.BAD_REQUEST, "a request must have one Host header", headers=_LAST)


_LAST: Final = {"Connection": "close"}
"""The connection is closed after such a request."""


log = get_logger(__name__)

_UNKNOWN = "unknown"
_OF_ONE_SITE = 64
"""Length of the IPv6 prefix that all addresses of one client share."""


def speaks_tls(scheme: str, headers: Headers) -> bool:
    """Whether the browser uses TLS, with this server or with a proxy in front of it.

    The header of the proxy can be forged. That is harmless: it only makes the cookie of the same client secure.
    """
    return "https" in (scheme, headers.get("x-forwarded-proto", "").lower())


class ClientAddresses:
    """Determines the client address of a request behind the proxies of the settings.

    Each proxy appends the address that it saw to `X-Forwarded-For`. So only the last entries can be trusted: as many as
    there are proxies, and only while each was written by an address in `proxy_networks`.
    """

    def __init__(self, settings: HttpSettings) -> None:
        self._proxies, self._networks = settings.proxies, [ip_network(each) for each in settings.proxy_networks]
        self._has_warned = False

    @property
    def are_forwarded(self) -> bool:
        """Whether `X-Forwarded-For` is evaluated."""
        return self._proxies > 0

    def of(self, peer: str | None, forwarded: str) -> str:
        """The client's address; for IPv6, its network.

        `peer` is the address that connected to this process, `forwarded` the value of `X-Forwarded-For`.
        """
        if self._proxies and forwarded:
            return _limited_unit(self._behind_proxies(peer, forwarded))
        return _limited_unit(peer or "")

    def of_scope(self, scope: Scope) -> str:
        """The client's address of an ASGI request."""
        client = scope.get("client")
        forwarded = ",".join(headers_of(scope).getall("x-forwarded-for", []))
        peer = None if client is None else str(client[0])
        if forwarded and not self._proxies and not self._has_warned and (peer is None or self._is_proxy(peer)):
            self._has_warned = True
            log.warning("http.forwarded_ignored", peer=peer)
        return self.of(peer, forwarded)

    def _behind_proxies(self, peer: str | None, forwarded: str) -> str:
        found = peer or ""
        # From the last entry backwards, only as many as there are proxies: earlier entries are
        # under control of the client.
        entries = forwarded.rsplit(",", self._proxies)[::-1]
        for entry in entries[: self._proxies]:
            # A connection over a Unix socket has no address; it comes from a process of this machine.
            if found and not self._is_proxy(found):
                break
            if _parsed(entry) is None:
                break
            found = entry
        return found

    def _is_proxy(self, text: str) -> bool:
        address = _parsed(text)
        return address is not None and any(
            address.version == network.version and address in network for network in self._networks
        )


@lru_cache(maxsize=4096)
def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """The address in a text that may have a port, brackets or a zone; None if there is none."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # A dual-stack socket reports IPv4 clients as mapped IPv6 addresses.
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


@lru_cache(maxsize=4096)
def _limited_unit(text: str) -> str:
    """The unit to which limits of requests apply: the IPv4 address, or the network of an IPv6 address."""
    found = _parsed(text)
    if found is None:
        return _UNKNOWN
    if isinstance(found, IPv4Address) or found.is_loopback:
        return str(found)
    # A client usually has a whole /64 network and could change its address for each attempt.
    network = int(found) >> _OF_ONE_SITE << _OF_ONE_SITE
    return f"{IPv6Address(network)}/{_OF_ONE_SITE}"


ALWAYS: Final[tuple[Pair, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_ON_PAGES: Final[tuple[Pair, ...]] = (
    (
        b"permissions-policy",
        b"camera=(), microphone=(), geolocation=(), payment=(), usb=(), display-capture=()",
    ),
)
_OVER_TLS: Final[tuple[Pair, ...]] = ((b"strict-transport-security", b"max-age=31536000"),)
"""Browsers ignore it without TLS. Behind a proxy that terminates TLS, the proxy passes it on."""


def put_on(headers: list[Pair], scope: Scope) -> None:
    """Add the security headers that an answer does not set itself."""
    own = dict(headers)
    is_page = own.get(b"content-type", b"").startswith(b"text/html")
    is_secure = speaks_tls(scope["scheme"], headers_of(scope))
    wanted = (*ALWAYS, *(_ON_PAGES if is_page else ()), *(_OVER_TLS if is_secure else ()))
    headers.extend(pair for pair in wanted if pair[0] not in own)


def of_data(*, is_secure: bool) -> tuple[Pair, ...]:
    """The security headers of an answer that is data."""
    return (*ALWAYS, *(_OVER_TLS if is_secure else ()))
