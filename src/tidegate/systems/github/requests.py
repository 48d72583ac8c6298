"""How GitHub is asked."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from tidegate import __version__
from tidegate.core.errors import InvalidArgument
from tidegate.engine.upstream import Request

API_VERSION = "2022-11-28"
USER_AGENT = f"tidegate/{__version__}"
FREE = "/rate_limit"
"""A call that costs nothing: it stands in for one whose answer is known already."""
PER_PAGE = 100


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for, without the address and without the secret."""

    path: str
    etag: str | None = None
    query: str | None = None
    """GraphQL; then the call is a POST."""
    variables: dict[str, Any] = {}
    media_type: str | None = None
    """The representation that is asked for; None: the usual one."""


def require_api_url(url: str) -> str:
    """The address of the API without a slash at its end.

    One with a user or a password is refused without repeating it: addresses are stored, and shown to everybody.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        hidden = parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]).geturl()
        raise InvalidArgument("api_url", hidden, "must not have a user or a password in it; store a credential instead")
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise InvalidArgument("api_url", url, "must be an http or https address without a query")
    return url.rstrip("/")


def to_request(call: Call, *, api_url: str, secret: str, purpose: str) -> Request:
    """The whole request."""
    headers = {
        "Authorization": f"Bearer {secret}",
        "Accept": call.media_type or "application/vnd.github+json",
        "User-Agent": USER_AGENT,
        "X-GitHub-Api-Version": API_VERSION,
    }
    if call.query is not None:
        body = msgspec.json.encode({"query": call.query, "variables": call.variables})
        return Request(
            url=api_url + call.path,
            purpose=purpose,
            method="POST",
            headers={**headers, "Content-Type": "application/json"},
            body=body,
        )
    if call.etag is not None:
        headers["If-None-Match"] = call.etag
    return Request(url=api_url + call.path, purpose=purpose, headers=headers)
