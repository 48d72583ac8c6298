"""How a call to an upstream can fail. An answer with any status is no failure.

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

from typing import Literal

from tidegate.core.errors import TidegateError, Unavailable
from tidegate.engine.upstream.messages import Head, Request, shown

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
