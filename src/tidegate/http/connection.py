"""The connection of a request, for handlers that write to it directly.

ASGI passes an answer to the server in messages. Two kinds of answers are written to the connection instead: answers of
raw handlers whose head is composed already, and small events that are sent to thousands of clients without a task for
each. Our server offers the connection in the state of each request; under another server there is none, and answers
are sent as messages.
"""

import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tidegate.http.asgi import Scope, is_for_head

CONNECTION = "tidegate.connection"
_MOST_UNSENT = 16 * 1024
_SILENT_MS = 60_000
"""The network gives up a client that has acknowledged nothing for this long."""


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
        """Send a chunk of an answer whose head announced chunks."""
        ...

    def abort(self) -> None:
        """Close the connection at once."""
        ...

    def respond(self, scope: Mapping[str, Any], *pieces: bytes) -> bool:
        """Send a whole answer, head and body.

        Returns False, and sends nothing, when the answer has to be sent as messages: it is not the turn of this
        request, the connection is to be closed afterwards, or the client is slow.
        """
        ...

    def cancel_when_lost(self, task: Any) -> None:
        """Cancel a task or future when the client closes the connection while it waits for this answer."""
        ...


def connection_of(scope: Scope) -> Connection | None:
    """The connection of a request; None under a server that offers none."""
    state = scope.get("state")
    return None if state is None else state.get(CONNECTION)


def stream_of(scope: Scope) -> Connection | None:
    """The connection of a request whose answer is sent in chunks; None where events have to be sent as messages."""
    is_chunked = scope["http_version"] == "1.1" and scope["method"] == "GET" and not is_for_head(scope)
    return connection_of(scope) if is_chunked else None


def prepare(transport: Any) -> None:
    """Buffer little for a slow client, and detect one that is gone without a word."""
    transport.set_write_buffer_limits(high=_MOST_UNSENT)
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS)
