"""Servers that can be lost: stopped, killed, and started again on the same port, with their data or without."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis import Redis
from tests.servers.guarded import GuardedServer, new_folder
from tests.servers.ports import free_ports

from tidegate.storage.valkey.embedded import server_binary

_READY = "eady to accept connections"
_PAUSE_MS = 60_000
"""Until the server is killed: at once."""
_LOG = ("--appendonly", "yes", "--appendfsync", "everysec")


class LosableValkey:
    """A server on a port of its own; in memory alone unless it `keeps` its data in an append-only file."""

    def __init__(self, *, keeps: bool = False, binary: Path | None = None) -> None:
        self._data, self._keeps = new_folder(None), keeps
        self._binary = binary or server_binary()
        (self._port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{self._port}"
        self._server: GuardedServer | None = None
        self.start()

    @property
    def port(self) -> int:
        """Where it listens, whenever it does."""
        return self._port

    def start(self) -> None:
        """Start with the data in the data folder."""
        folder = new_folder(None)
        where = ("--bind", "127.0.0.1", "--port", str(self._port), "--dir", str(self._data), "--save", "")
        command = [str(self._binary), *where, *(_LOG if self._keeps else ("--appendonly", "no"))]
        self._server = GuardedServer(folder, command, ready=_READY, signal="KILL", user=None)

    def kill(self) -> None:
        """Kill it; unwritten data is lost."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def lose(self) -> None:
        """Delete the data folder while the server is stopped."""
        shutil.rmtree(self._data, ignore_errors=True)
        self._data = new_folder(None)

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    def restart_without_the_last(self, size: int) -> None:
        """Kill it, and start it again as after a power failure: the last `size` bytes were never written."""
        self.kill()
        for file in self._data.glob("appendonlydir/*.incr.aof"):
            with file.open("r+b") as log:
                log.truncate(max(0, file.stat().st_size - size))
        self.start()

    def flush(self) -> None:
        """Forget everything, scripts included."""
        with self._client() as client:
            client.flushall()
            client.script_flush()

    def take_log(self, log: str) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
        """Forget everything in one step, but for what a stream says, which is handed out."""
        with self._client() as client, client.pipeline() as together:
            together.xrange(log)
            together.flushall()
            together.script_flush()
            told: list[Any] = together.execute()
        return told[0]

    def last_entries(self, log: str, after: bytes) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
        """Return the entries of a stream after this one, and accept no write any more: nothing comes after them."""
        with self._client() as client:
            client.client_pause(_PAUSE_MS, all=False)
            entries: Any = client.xrange(log, b"(" + after if after else b"-")
        return entries

    def snapshot(self) -> None:
        """Write everything to the file that the next start reads."""
        with self._client() as client:
            client.save()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)

    def _client(self) -> Redis:
        return Redis.from_url(self.url, protocol=3, legacy_responses=False)
