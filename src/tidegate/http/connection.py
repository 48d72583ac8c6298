"""The connection of a request, for handlers that write to it directly.

ASGI passes an answer to the server in messages. Two kinds of answers are written to the connection directly: answers of
raw handlers with a precomposed head, and small events for thousands of clients without a task per client. The server of
this package offers the connection in the state of each request. Other servers do not; answers are then sent as
messages.
"""

import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tidegate.http.asgi import Scope, is_for_head

CONNECTION = "tidegate.connection"
_MOST_UNSENT = 16 * 1024
_SILENT_MS = 60_000
"""The kernel closes a connection if the client has acknowledged nothing for this long."""


class Connection(Protocol):
    """The connection of one request."""

    @property
    def is_clogged(self) -> bool:
        """Whether the client reads more slowly than events are written."""
        ...

    def begin(self, on_writable: Callable[[], None]) -> None:
        """Limit what is buffered for a slow client; `on_writable` is called when the buffer has been sent."""
        ...

    def write(self, body: bytes) -> None:
        """Send a chunk of an answer with chunked transfer encoding."""
        ...

    def abort(self) -> None:
        """Close the connection at once."""
        ...

    def respond(self, scope: Mapping[str, Any], *pieces: bytes) -> bool:
        """Send a whole answer, head and body.

        Returns False and sends nothing if the answer has to be sent as messages: an earlier request of the connection
        is unanswered, the connection must be closed after the answer, or the client is slow.
        """
        ...

    def cancel_when_lost(self, task: Any) -> None:
        """Cancel a task or future when the client closes the connection while it waits for this answer."""
        ...


def connection_of(scope: Scope) -> Connection | None:
    """The connection of a request; None if the server does not offer it."""
    state = scope.get("state")
    return None if state is None else state.get(CONNECTION)


def stream_of(scope: Scope) -> Connection | None:
    """The connection of a request, for a chunked answer; None if events have to be sent as messages."""
    # HTTP/1.0 has no chunked encoding.
    is_chunked = scope["http_version"] == "1.1" and scope["method"] == "GET" and not is_for_head(scope)
    return connection_of(scope) if is_chunked else None


def prepare(transport: Any) -> None:
    """Limit the write buffer for slow clients, and detect clients that disappeared without closing the connection."""
    transport.set_write_buffer_limits(high=_MOST_UNSENT)
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS)
