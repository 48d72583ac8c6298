"""Where a request comes from, as far as that can be known, and who says so."""

from ipaddress import IPv6Address, ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

_UNKNOWN = "unknown"
_OF_ONE_SITE = 64
"""Whoever has an IPv6 address has all addresses with the same first bits."""


def speaks_tls(scheme: str, headers: Headers) -> bool:
    """Whether the browser speaks TLS, with us or with whoever stands before us.

    Anybody can claim it; all he gets is a cookie that his browser keeps to itself.
    """
    return "https" in (scheme, headers.get("x-forwarded-proto", "").lower())


def client_address(scope: Scope, *, proxies: int) -> str:
    """Who connected, behind so many proxies of ours; IPv6 by its network.

    Each proxy writes whom it saw at the end of `X-Forwarded-For`. What stands before that anybody may have written.
    """
    client = scope.get("client")
    seen = _counted(str(client[0])) if client else None
    if proxies:
        told = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        if len(told) >= proxies:
            seen = _counted(told[-proxies]) or seen
    return seen or _UNKNOWN


def _counted(text: str) -> str | None:
    """An address as it is counted; None for what is none."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    network = int(found) >> _OF_ONE_SITE << _OF_ONE_SITE
    return str(found) if found.is_loopback else f"{IPv6Address(network)}/{_OF_ONE_SITE}"
