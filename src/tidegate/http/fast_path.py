"""Fast handlers: they answer the most frequent requests where their bytes arrive, without an application.

A fast handler reads a whole request that is the only one in its bytes. It declines everything unusual, everything that
it would refuse, and everything that is not its own: such a request takes the normal way through the application, which
knows all rules. Both ways give the same answer; a test of each handler compares them.
"""

from collections.abc import Collection
from typing import Any, Protocol

from tidegate.http import security_headers
from tidegate.http.header_limits import MOST_HEADERS

PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~-")
"""Characters of an address that need no escape."""
SECURITY_HEADERS = security_headers.as_bytes(is_secure=False)
SECURITY_HEADERS_OVER_TLS = security_headers.as_bytes(is_secure=True)
_NOT_PLAIN = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer"})
_TOKEN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")
_ODD = b"\0\n\v\f\r"

Fields = dict[bytes, bytes]
Response = tuple[bytes, ...]
"""In pieces, so that bytes which many answers share are never copied."""


class Exchange(Protocol):
    """One request of a connection that waits for its answer. Exactly one of the methods is called, once."""

    def respond(self, response: Response) -> None:
        """Send the answer."""
        ...

    def decline(self) -> None:
        """Pass the request on to the application."""
        ...


class Pending(Protocol):
    """A request that is being answered."""

    def leave(self) -> None:
        """The connection is closed: neither method of the exchange may be called from now on."""
        ...


class FastHandler(Protocol):
    """Answers one kind of request."""

    def read(self, data: bytes, peer: str | None = None) -> Any | None:
        """Read a whole request that came from the address `peer`; None when this handler does not answer it."""
        ...

    def answer(self, call: Any) -> Response | None:
        """Answer what `read` returned at once; None when it takes a moment."""
        ...

    def wait(self, call: Any, exchange: Exchange) -> Pending:
        """Answer it later, through `exchange`."""
        ...


def is_secure(fields: Fields) -> bool:
    """Whether a proxy says that the client speaks TLS with it. There is no TLS on the fast path itself."""
    return fields.get(b"x-forwarded-proto", b"").lower() == b"https"


def has_odd_signs(data: bytes, line_ends: int) -> bool:
    """Whether there is a character that another parser could take for the end of a line, or of the request."""
    return len(data) - len(data.translate(None, _ODD)) != 2 * line_ends


def plain_fields(lines: list[bytes], unusual: Collection[bytes] = _NOT_PLAIN) -> Fields | None:
    """The headers; None when there is anything unusual about them."""
    fields: Fields = {}
    if len(lines) > MOST_HEADERS:
        return None
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not colon or not name or name in fields or name in unusual or not _TOKEN.issuperset(name):
            return None
        fields[name] = value.strip(b" \t")
    if b"host" not in fields or fields.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    return fields
