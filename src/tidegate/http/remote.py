"""Where a request comes from: the client address that limits use, and whether the browser uses TLS."""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from litestar.datastructures import Headers

from tidegate.core.telemetry.logs import get_logger
from tidegate.http.asgi import Scope, headers_of
from tidegate.http.settings import HttpSettings

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
