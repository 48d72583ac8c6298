"""Ports for servers that must know their port before they start."""

import secrets
import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Ports without a listener, below the range from which the kernel numbers outgoing connections.

    A port of that range could be taken by any connection between this call and the start of the server.
    """
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            port = 20_000 + secrets.randbelow(12_000)
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports


def free_port() -> int:
    """One port; see `free_ports`."""
    return free_ports(1)[0]
