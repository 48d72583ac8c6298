"""Restricts requests to public addresses if the operator did not choose their URL.

A URL that comes from a user, a page or a redirect may lead to a server that only this machine can reach: on loopback,
in the private network, or the metadata service of a cloud. What a name resolves to can change between two lookups, and
one address has many spellings (`2130706433`, `0x7f.1`, `::ffff:127.0.0.1`). So not the URL is checked, but the address
of the socket: before it is connected, and again before the first byte is sent.
"""

import socket
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from tidegate.core.errors import InvalidArgument

_CARRIES_IPV4 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))
"""NAT64 and the deprecated IPv4-compatible addresses: the last 32 bits are the IPv4 address that is reached."""
_LAST_32 = 2**32 - 1
_LOCAL_NAMES = ("localhost", ".localhost", ".local", ".internal")


class PrivateAddress(OSError):
    """Raised instead of a connection to an address that is not public."""


class NumericHost(OSError):
    """Raised for a host that is an address in an unusual form, such as `2130706433` or `0x7f.1`."""


class PrivateHosts:
    """Hosts that may be called although their addresses are not public: names, addresses and networks.

        PrivateHosts(["127.0.0.1", "10.1.0.0/16", "shop.internal"])

    Raises `InvalidArgument` for an entry that is none of these.
    """

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._names, self._networks = set[str](), list[Any]()
        for entry in entries:
            try:
                self._networks.append(ip_network(entry))
            except ValueError:
                if not entry or "/" in entry or ":" in entry or not entry.isprintable():
                    reason = "must be a host name, an address, or a network such as 10.1.0.0/16"
                    raise InvalidArgument("private_hosts", entry[:80], reason) from None
                self._names.add(entry.lower().rstrip("."))

    def permits(self, host: str, address: str) -> bool:
        """Whether a connection to `address` may be used for a request to `host`."""
        found = parse(address)
        if found is None:
            return False
        return is_public(found) or self._lists(host, found)

    def refuses(self, host: str) -> bool:
        """Whether a host is known to be refused without looking it up: an address, or a name for local machines."""
        host = host.lower().rstrip(".")
        if host in self._names:
            return False
        found = parse(host)
        if found is None:
            return any(host == name or (name.startswith(".") and host.endswith(name)) for name in _LOCAL_NAMES)
        return not self.permits(host, host)

    def _lists(self, host: str, address: IPv4Address | IPv6Address) -> bool:
        return host.lower().rstrip(".") in self._names or any(
            address.version == network.version and address in network for network in self._networks
        )


@lru_cache(maxsize=4096)
def is_address(host: str) -> bool:
    """Whether a host is an address in its usual form."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def parse(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address in every form that the system accepts; None for a name.

    An IPv6 address that embeds an IPv4 address is converted to it.
    """
    text = text.strip("[]").partition("%")[0]
    try:
        found = ip_address(text)
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(text))  # 2130706433, 0x7f.1, 0177.0.0.1
        except (OSError, ValueError):
            return None
    return _embedded(found) if isinstance(found, IPv6Address) else found


def _embedded(address: IPv6Address) -> IPv4Address | IPv6Address:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    # `::` and `::1` are addresses of their own.
    if int(address) > 1 and any(address in network for network in _CARRIES_IPV4):
        return IPv4Address(int(address) & _LAST_32)
    return address


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is on the public internet, not on this machine or in a private network."""
    if address.is_multicast or address.is_unspecified or address.is_reserved or not address.is_global:
        return False
    return not (isinstance(address, IPv6Address) and address.is_site_local)


class AddressGuard:
    """Checks the addresses of one request; `refused` is the last address that it refused."""

    def __init__(self, private: PrivateHosts, host: str) -> None:
        self._private, self._host = private, host
        self.refused: str | None = None

    def require(self, address: str) -> None:
        """Raise `PrivateAddress` if a connection to this address must not be used."""
        if not self._private.permits(self._host, address):
            self.refused = address
            raise PrivateAddress("the address is not public")


def open_socket(guard: AddressGuard | None, address_info: tuple[Any, ...]) -> socket.socket:
    """Create a socket for an address, as `getaddrinfo` returns it. Raises `PrivateAddress` if the guard refuses it."""
    family, kind, protocol, _, address = address_info
    if guard is not None:
        guard.require(str(address[0]))
    return socket.socket(family=family, type=kind, proto=protocol)
