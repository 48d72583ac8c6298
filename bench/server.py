"""The server all queues are measured on: the bundled one, on a loopback port, with an append-only file as embedded."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager

from redis import Redis
from redis.exceptions import RedisError

from tidegate.storage.valkey.embedded import server_binary


@contextmanager
def tcp_server() -> Generator[str]:
    """Its URL, for the length of a block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        options = ["--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        options += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        server = subprocess.Popen([str(server_binary()), *options], stdout=subprocess.DEVNULL)
        try:
            _wait_until_ready(port)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def _wait_until_ready(port: int) -> None:
    with Redis(port=port) as client:
        for _ in range(500):
            try:
                client.ping()
            except RedisError:
                time.sleep(0.01)
            else:
                return
    raise RuntimeError("the server did not start")
