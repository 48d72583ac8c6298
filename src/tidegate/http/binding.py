"""Opens the listening sockets before anything else starts, so that a port in use is reported at once, in one line."""

import errno
import socket
from collections.abc import Sequence
from typing import Any, Self

from tidegate.core.errors import InvalidSettings
from tidegate.http.authentication import is_loopback
from tidegate.http.settings import HttpSettings

_BACKLOG = 1024
_ELSEWHERE = "Choose another with --port or TIDEGATE_HTTP__PORT"
_REASONS = {
    errno.EADDRINUSE: f"the port is in use by another program. {_ELSEWHERE}",
    errno.EACCES: f"this user has no permission to listen on the port. {_ELSEWHERE}",
    errno.EADDRNOTAVAIL: "it is not an address of this machine. Choose another with --host or TIDEGATE_HTTP__HOST",
}


class Binding:
    """The sockets of one address. They listen at once; connections wait in the backlog until the server starts."""

    def __init__(self, settings: HttpSettings) -> None:
        """Open the sockets. Raises `InvalidSettings` if that is impossible, or unsafe without an API key."""
        self._host = settings.host
        addresses = _resolve(settings.host, settings.port)
        self.is_local = all(is_loopback(address[0].partition("%")[0]) for _, address in addresses)
        if not self.is_local and not settings.keys:
            raise InvalidSettings(
                f"listening on {settings.host}, where other machines can connect, needs an API key. "
                "Set TIDEGATE_HTTP__API_KEY (`openssl rand -hex 32` makes one), or listen on 127.0.0.1"
            )
        self.port = settings.port
        self._sockets: list[socket.socket] = []
        self._open(addresses)

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104 - printed, not listened on
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def address(self) -> str:
        """Host and port of the listening sockets."""
        return f"{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}"

    def sockets(self) -> list[socket.socket]:
        """The listening sockets; opened again on the same port if they were closed."""
        if any(each.fileno() < 0 for each in self._sockets):
            self.close()
            self._open(_resolve(self._host, self.port))
        return self._sockets

    def close(self) -> None:
        """Close the listening sockets."""
        for each in self._sockets:
            each.close()
        self._sockets = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, addresses: Sequence[tuple[socket.AddressFamily, Any]]) -> None:
        try:
            for family, address in addresses:
                # The protocol is named: asyncio sets TCP_NODELAY only then, and small answers are sent without delay.
                opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
                self._sockets.append(opened)
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                opened.setblocking(False)
                opened.bind((address[0], self.port, *address[2:]))
                opened.listen(_BACKLOG)
                self.port = opened.getsockname()[1]  # all sockets use the same port, also if port 0 was configured
        except OSError as error:
            self.close()
            reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
            raise InvalidSettings(f"cannot listen on {self.address}: {reason}") from None


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    """Every address that a host name resolves to."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise InvalidSettings(
            f"cannot listen on {host}: the host name is not known. Choose another with --host or TIDEGATE_HTTP__HOST"
        ) from None
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))
