"""The short way to a client who is sent a little, often: bytes go where the connection is, without a task for them.

Our server offers it with each request, in the scope's extensions; under another server there is none, and events go
the usual way. Nothing may stand between that changes the bytes of an answer, such as a compressor.
"""

import socket
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Scope

EXTENSION = "tidegate.wire"
_MOST_UNSENT = 16 * 1024
_SILENT_MS = 60_000
"""A client whose machine has not acknowledged anything for so long is gone, whatever the network says."""


class Wire(Protocol):
    """The connection of one request, whose answer has begun and is sent in chunks."""

    @property
    def is_clogged(self) -> bool:
        """Whether the client is slower than we are: what is written now would pile up here."""
        ...

    def begin(self, on_writable: Callable[[], None]) -> None:
        """From now on little is kept for a client that is slow; `on_writable` is called when it has caught up."""
        ...

    def write(self, body: bytes) -> None:
        """Send a piece of the answer."""
        ...

    def abort(self) -> None:
        """Give the client up."""
        ...


def wire_of(scope: Scope) -> Wire | None:
    """That of a request whose answer is sent in chunks; None where there is none."""
    found: Any = scope.get("extensions", {}).get(EXTENSION)
    return found if scope["http_version"] == "1.1" and scope["method"] == "GET" else None


def prepare(transport: Any) -> None:
    """Keep little for a slow client, and notice one that is gone without a word."""
    transport.set_write_buffer_limits(high=_MOST_UNSENT)
    connection = transport.get_extra_info("socket")
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS)
