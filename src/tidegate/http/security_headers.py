"""Security headers of every answer.

By default an answer is data: browsers must not execute it, frame it, or load it into pages of other sites. Pages set
their own content security policy.
"""

from typing import Final

from tidegate.http.asgi import Pair, Scope, headers_of
from tidegate.http.remote import speaks_tls

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
