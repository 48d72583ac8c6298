"""Redirects: the target of an answer, and the request to it.

The client follows no redirects. A redirect is an answer like any other, and the request that follows it is a new call
with a permit of its own.
"""

from collections.abc import Sequence

import msgspec
from yarl import URL

from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.redaction import is_secret_name
from tidegate.engine.upstream.messages import Head, Request, shown

MOST_REDIRECTS = 5
"""Default for the maximum number of redirects of one call."""
_STATUSES = frozenset({301, 302, 303, 307, 308})
_ANY_METHOD = frozenset({307, 308})
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_LONGEST_URL = 2_000


def is_redirect(head: Head) -> bool:
    """Whether an answer is a redirect."""
    return head.status in _STATUSES and "Location" in head.headers


def target_of(head: Head) -> str:
    """Return the absolute URL to which a redirect leads. Raises `InvalidArgument` if it is not an HTTP URL."""
    location = head.headers.get("Location", "")
    try:
        # An encoded URL is used unchanged; others are encoded first.
        encoded = location.isascii() and location.isprintable()
        target = URL(head.url, encoded=True).join(URL(location, encoded=encoded)).with_fragment(None)
        if target.scheme not in ("http", "https") or not target.host or target.user is not None:
            raise ValueError
    except ValueError:
        raise InvalidArgument("Location", shown(location), "is not an HTTP URL") from None
    if len(str(target)) > _LONGEST_URL:
        raise InvalidArgument("Location", shown(location), f"must have at most {_LONGEST_URL} characters")
    return str(target)


def may_follow(request: Request, head: Head, target: str) -> bool:
    """Whether a redirect may be followed with the same method.

    GET and HEAD always; other methods only with status 307 or 308 and to the same server, because the body may be
    secret.
    """
    if request.method in _SAFE_METHODS:
        return True
    return head.status in _ANY_METHOD and _is_same_server(request.url, target)


def redirected(request: Request, redirects: Sequence[str]) -> Request:
    """Return the request with the last of these URLs, to which redirects led in this order.

    Secret headers are removed if one of the URLs is on another server, which could otherwise choose the request that
    is sent with them. A host other than the original one must have a public address.
    """
    headers = request.headers
    if not all(_is_same_server(request.url, target) for target in redirects):
        headers = {name: value for name, value in headers.items() if not is_secret_name(name)}
    public_only = request.public_only or _host(request.url) != _host(redirects[-1])
    return msgspec.structs.replace(request, url=redirects[-1], headers=headers, public_only=public_only)


def _host(url: str) -> str | None:
    return URL(url, encoded=True).host


def _is_same_server(one: str, other: str) -> bool:
    return URL(one, encoded=True).origin() == URL(other, encoded=True).origin()
