"""Servers that end with the process that started them, however that ends."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

_START_SECONDS = 60

# The guard reads from a pipe that only the test process holds. When that process ends, even by SIGKILL, the pipe
# closes, and the guard stops the server and removes its folder.
_GUARD = """
signal=$1; folder=$2; shift 2
"$@" </dev/null &
server=$!
exec >/dev/null 2>&1
read -r _
kill -s "$signal" "$server"; wait "$server"
rm -rf "$folder"
"""


class ServerDidNotStart(Exception):
    """The server ended, or said nothing useful for too long; the message holds what it printed."""


class GuardedServer:
    """A server process in a folder of its own."""

    def __init__(self, folder: Path, command: Sequence[str], *, ready: str, signal: str, user: str | None) -> None:
        self._output: list[str] = []
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", signal, str(folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the tests; the server follows when they are done
            text=True,
            user=user,
            extra_groups=[] if user else None,
        )
        threading.Thread(target=self._listen, args=(ready,), daemon=True).start()
        if not self._ready.wait(_START_SECONDS) or ready not in self._output[-1]:
            self.stop()
            raise ServerDidNotStart("".join(self._output[-30:]))

    @property
    def pid(self) -> int:
        """The guard's; the server is its only child."""
        return self._process.pid

    def stop(self) -> None:
        """Stop the server and remove its folder."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _listen(self, ready: str) -> None:
        assert self._process.stdout
        with self._process.stdout as output:
            for line in output:  # read to the end, so that the server never waits for us
                if not self._ready.is_set():
                    self._output.append(line)
                    if ready in line:
                        self._ready.set()
        self._ready.set()


def new_folder(owner: str | None) -> Path:
    """A new folder with a short path, since that of a socket in it may have a hundred characters."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-test-", dir="/tmp"))
    if owner:
        shutil.chown(folder, owner)
    return folder


def unprivileged_user() -> str | None:
    """Some servers refuse to run as root; then this user runs them."""
    return "nobody" if os.geteuid() == 0 else None
