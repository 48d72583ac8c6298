"""What is asked of an upstream, and what it answers."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol, Self

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.redaction import HIDDEN, is_secret_name, redact_text

Headers = CIMultiDictProxy[str]
"""Header lines by name, in any spelling: `headers["etag"]`, `headers.get("Link")`, `headers.getall("vary")`."""

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

_LONGEST_SHOWN = 300
_URL = re.compile(r"https?://(?:[a-zA-Z0-9._~-]+|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?(?:[/?#][!-~]*)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\r\n\0]*")
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call to an upstream. Nothing secret is shown of it."""

    url: str
    """Percent-encoded already, as links in answers are; it is sent as it stands."""
    purpose: str
    """What it is for, in a word or two, for errors: `github.repo_issues`."""
    method: str = "GET"
    headers: Mapping[str, str] = _NO_HEADERS
    body: bytes | None = None
    public_only: bool = False
    """Whether only a public address may be connected to: the URL came from a user, a page or a redirect. Hosts in
    `upstream.private_hosts` are exempt."""

    def __post_init__(self) -> None:
        require_name("purpose", self.purpose)
        if self.method not in METHODS:
            raise InvalidArgument("method", self.method, f"must be one of {', '.join(sorted(METHODS))}")
        _require_url(self.url)
        for name, value in self.headers.items():
            _require_header(name, value)

    def __repr__(self) -> str:
        headers = {name: HIDDEN if is_secret_name(name) else redact_text(text) for name, text in self.headers.items()}
        size = 0 if self.body is None else len(self.body)
        return f"Request({self.method} {shown(self.url)}, {self.purpose}, headers={headers}, {size} bytes)"


class Permit(Protocol):
    """The right to send one request."""

    @property
    def spends(self) -> str:
        """What the request is counted against, for metrics: a credential, or a priority of a limiter."""
        ...

    def use(self) -> None:
        """Spend the permit. Called right before the first byte leaves; raises `GrantVoid` where it must not."""
        ...

    def sent(self) -> None:
        """Note that the first byte left. The process may have been suspended since `use`."""
        ...


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first part of an answer: enough to book what the upstream says about our allowance."""

    status: int
    headers: Headers
    url: str
    """The address that answered."""
    received_at: datetime
    """When it arrived, by our clock."""

    @property
    def date(self) -> datetime | None:
        """When it was sent, by the upstream's clock; None if it does not say, or not in a way that can be read."""
        return _parsed_date(self.headers.get("Date"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.status}, {shown(self.url)})"


class Answer(Head, frozen=True, kw_only=True):
    """A whole answer, its body decompressed."""

    body: bytes
    elapsed_ms: float
    """From the call of `fetch` to the last byte."""

    def __repr__(self) -> str:
        return f"Answer({self.status}, {shown(self.url)}, {len(self.body)} bytes)"

    def pack(self) -> bytes:
        """As bytes, to be kept elsewhere for a while."""
        pairs = [(str(name), value) for name, value in self.headers.items()]
        packed: _Packed = (pairs, self.status, self.url, self.received_at, self.body, [], self.elapsed_ms)
        return msgspec.msgpack.encode(packed)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """The answer that was packed."""
        pairs, status, url, received_at, body, _, elapsed_ms = msgspec.msgpack.decode(packed, type=_Packed)
        return cls(
            headers=CIMultiDictProxy(CIMultiDict(pairs)),
            status=status,
            url=url,
            received_at=received_at,
            body=body,
            elapsed_ms=elapsed_ms,
        )


_Packed = tuple[list[tuple[str, str]], int, str, datetime, bytes, list[Any], float]
"""The list is always empty: releases before this one kept redirects there."""


def shown(url: str) -> str:
    """An address fit for a message: without secrets, and not too long."""
    text = redact_text(url)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _require_url(url: str) -> None:
    if _URL.fullmatch(url):
        return
    if "@" in url.partition("//")[2].partition("/")[0]:
        # Nothing of it is shown: the name alone may be a token.
        raise InvalidArgument("url", "…", "must hold no user and no password; use a header")
    reason = "must begin with http:// or https://, name a host, and be percent-encoded: printable ASCII without spaces"
    raise InvalidArgument("url", shown(url), reason)


def _require_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidArgument("header", name, "is no name of a header")
    if not _HEADER_VALUE.fullmatch(value):
        raise InvalidArgument(f"header {name}", "…", "must be one line")


@lru_cache(maxsize=64)
def _parsed_date(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
