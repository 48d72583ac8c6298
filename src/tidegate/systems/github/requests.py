"""Builds requests to GitHub's API."""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from tidegate import __version__
from tidegate.core.errors import InvalidArgument
from tidegate.engine.upstream import Request

API_VERSION = "2022-11-28"
USER_AGENT = f"tidegate/{__version__}"
FREE = "/rate_limit"
"""A call that costs nothing; sent in place of a call with a known answer."""
PER_PAGE = 100


class GithubCall(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a job, without host and secret."""

    path: str
    etag: str | None = None
    query: str | None = None
    """A GraphQL query, sent by POST."""
    variables: dict[str, Any] = {}
    media_type: str | None = None
    """The requested representation; None for the default."""


def require_api_url(url: str) -> str:
    """Return the API's URL without a trailing slash.

    A URL with a user or a password is refused without repeating it, because URLs are stored and shown.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        hidden = parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]).geturl()
        raise InvalidArgument("api_url", hidden, "must not have a user or a password in it; store a credential instead")
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise InvalidArgument("api_url", url, "must be an http or https address without a query")
    return url.rstrip("/")


def to_request(call: GithubCall, *, api_url: str, secret: str, purpose: str) -> Request:
    """Build the complete request."""
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
