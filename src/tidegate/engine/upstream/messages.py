"""Requests to upstreams, their answers, and how a call can fail. An answer with any status is no failure.

    TidegateError
    └── UpstreamFailed
        ├── ConnectFailed       no connection: the upstream received nothing
        ├── TimedOut            too long: to connect, until the answer, or in its body
        ├── ConnectionBroken    the connection ended before any answer
        ├── Truncated           the answer began and its body ended too early
        ├── AddressRefused      the host has no public address, and the request must not go to another
        ├── TooLarge            the body is larger than we take
        └── Undecodable         the answer is not HTTP, or its body is not what its encoding says

`was_sent` says whether the upstream can have counted the call: True, it has; False, it has not; None, unknown, so
it counts as spent. `head` is there when the answer had begun, so that what it says of our allowance can be booked.
Those that are `Unavailable` too may be tried again; the others would fail again.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, Self

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, TidegateError, Unavailable
from tidegate.core.telemetry.redaction import HIDDEN, is_secret_name, redact_text, redact_url

Headers = CIMultiDictProxy[str]
"""Header lines by name, in any spelling: `headers["etag"]`, `headers.get("Link")`, `headers.getall("vary")`."""

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

_LONGEST_SHOWN = 300
_SECONDS_DIGITS = 18
"""Digits of `Retry-After` that are read: further ones change nothing, and a conversion of thousands is refused."""
_URL = re.compile(r"(https?)://([a-zA-Z0-9._~-]+|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?([/?][!\x22$-~]*)?(?:#[!-~]*)?")
_PORTS = {"http": 80, "https": 443}
_LARGEST_PORT = 65_535
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\r\n\0]*")
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to an upstream. Its `repr` contains no secrets.

    Raises `InvalidArgument` for an invalid URL, method or header.

    Example:
        Request(url="https://api.github.com/users/octocat", purpose="github.user", headers={"Authorization": "..."})
    """

    url: str
    """The URL, percent-encoded; it is sent unchanged."""
    purpose: str
    """Short name of the request for error messages: `github.repo_issues`."""
    method: str = "GET"
    """DELETE, GET, HEAD, OPTIONS, PATCH, POST or PUT."""
    headers: Mapping[str, str] = _NO_HEADERS
    """Headers by name. The client adds User-Agent and Accept-Encoding."""
    body: bytes | None = None
    """The body, if there is one."""
    public_only: bool = False
    """Whether the host must have a public address, for URLs from a user, a page or a redirect. Hosts in
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
        """Label for metrics: the credential, or the priority of a limiter, that the request is counted for."""
        ...

    def use(self) -> None:
        """Spend the permit. Called right before the first byte is sent; raises `GrantVoid` if it is no longer valid."""
        ...

    def sent(self) -> None:
        """Record that the first byte was sent. The process may have been suspended since `use`."""
        ...


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Status and headers of an answer, which report the remaining quota even if the body is incomplete."""

    status: int
    """The HTTP status."""
    headers: Headers
    """The headers; names are compared without regard to case."""
    url: str
    """The URL that answered."""
    received_at: datetime
    """When the headers arrived, by the clock of this process."""

    @property
    def date(self) -> datetime | None:
        """The Date header: when the answer was sent, by the upstream's clock. None if it is missing or invalid."""
        return _parsed_date(self.headers.get("Date"))

    def retry_after(self, *, longest: timedelta) -> timedelta | None:
        """The pause that `Retry-After` asks for, at most `longest`; None if it is missing, invalid or already over.

        A date is compared with the `Date` of the same answer, so that different clocks do not matter.
        """
        text = self.headers.get("Retry-After", "").strip()
        if text.isascii() and text.isdigit():
            return timedelta(seconds=min(int(text[:_SECONDS_DIGITS]), longest.total_seconds()))
        until = _parsed_date(text)
        if until is None:
            return None
        pause = min(until - (self.date or self.received_at), longest)
        return pause if pause > timedelta(0) else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.status}, {shown(self.url)})"


class Answer(Head, frozen=True, kw_only=True):
    """A complete answer of an upstream.

    answer.status  # 200
    answer.headers["etag"]  # names in any case
    msgspec.json.decode(answer.body)
    """

    body: bytes
    """The body, decompressed."""
    elapsed_ms: float
    """Time from the call of `fetch` to the last byte."""

    def __repr__(self) -> str:
        return f"Answer({self.status}, {shown(self.url)}, {len(self.body)} bytes)"

    def pack(self) -> bytes:
        """Serialize the answer, for `unpack`. Headers with the name of a secret, such as `Set-Cookie`, are left out."""
        pairs = [(str(name), value) for name, value in self.headers.items() if not is_secret_name(name)]
        packed: _Packed = (pairs, self.status, self.url, self.received_at, self.body, self.elapsed_ms)
        return msgspec.msgpack.encode(packed)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Deserialize an answer that `pack` serialized."""
        pairs, status, url, received_at, body, elapsed_ms = msgspec.msgpack.decode(packed, type=_Packed)
        return cls(
            headers=CIMultiDictProxy(CIMultiDict(pairs)),
            status=status,
            url=url,
            received_at=received_at,
            body=body,
            elapsed_ms=elapsed_ms,
        )


_Packed = tuple[list[tuple[str, str]], int, str, datetime, bytes, float]


class Origin(NamedTuple):
    """What a connection leads to."""

    scheme: str
    host: str
    """In lower case, without brackets."""
    port: int


def split_url(url: str) -> tuple[Origin, str, str]:
    """The origin of a valid URL, the header Host, and the target of the request line: the rest, unchanged."""
    match = _URL.fullmatch(url)
    assert match is not None, "requests are made of valid URLs"
    scheme, host, port, target = match.groups()
    origin = Origin(scheme, host.strip("[]").lower(), int(port) if port else _PORTS[scheme])
    name = host if origin.port == _PORTS[scheme] else f"{host}:{origin.port}"
    return origin, name, f"/{target}" if target and target[0] == "?" else target or "/"


def shown(url: str) -> str:
    """A URL for messages: secrets are redacted and long URLs are shortened."""
    text = redact_url(url)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _require_url(url: str) -> None:
    match = _URL.fullmatch(url)
    if match is not None and int(match[3] or 0) <= _LARGEST_PORT:
        return
    if "@" in url.partition("//")[2].partition("/")[0]:
        # The URL is not shown, because the user name can be a token.
        raise InvalidArgument("url", "…", "must contain no user and no password; use a header")
    reason = "must start with http:// or https://, contain a host, and be percent-encoded: printable ASCII, no spaces"
    raise InvalidArgument("url", shown(url), reason)


def _require_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidArgument("header", name, "is not a valid header name")
    if not _HEADER_VALUE.fullmatch(value):
        raise InvalidArgument(f"header {name}", "…", "must be one line")


@lru_cache(maxsize=64)
def _parsed_date(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    # A year or a time zone that no datetime can represent is an OverflowError.
    except (ValueError, OverflowError):
        return None


Phase = Literal["connect", "answer", "body"]


class UpstreamFailed(TidegateError):
    """The call to an upstream brought no whole answer."""

    problem = "unavailable"

    @property
    def public_message(self) -> str:
        """The message without the address."""
        return "the upstream gave no usable answer"

    def __init__(
        self,
        request: Request,
        reason: str,
        *,
        was_sent: bool | None,
        head: Head | None = None,
    ) -> None:
        # The request is not kept: it holds a token, and errors travel far.
        super().__init__(f"{request.purpose}: {request.method} {shown(request.url)}: {reason}")
        self.purpose, self.reason = request.purpose, reason
        self.summary = f"{request.purpose}: {reason}"
        """The error without the address of the upstream, which readers of collected documents need not know."""
        self.was_sent = was_sent
        self.head = head


class ConnectFailed(UpstreamFailed, Unavailable):
    """The host has no address, refuses connections, or its certificate is wrong."""


class TimedOut(UpstreamFailed, Unavailable):
    """The upstream took too long; `phase` says for what."""

    def __init__(
        self,
        request: Request,
        phase: Phase,
        *,
        was_sent: bool | None,
        head: Head | None = None,
    ) -> None:
        super().__init__(request, _TOO_LONG[phase], was_sent=was_sent, head=head)
        self.phase: Phase = phase


class ConnectionBroken(UpstreamFailed, Unavailable):
    """The connection ended before an answer came."""


class Truncated(UpstreamFailed, Unavailable):
    """The answer began, and the connection or the data ended before its body was complete."""


class AddressRefused(UpstreamFailed):
    """The host has no public address and is not in `upstream.private_hosts`, or is written in a way that hides its
    address. Nothing was sent."""


class TooLarge(UpstreamFailed):
    """The body is larger than the settings allow; it was not read any further."""


class Undecodable(UpstreamFailed, Unavailable):
    """What came cannot be read."""


_TOO_LONG: dict[Phase, str] = {
    "connect": "no connection in time",
    "answer": "connected, but no answer in time",
    "body": "the answer began, but did not end in time",
}
