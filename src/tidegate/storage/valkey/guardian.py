"""Runs the embedded server for as long as somebody uses it, and not a moment longer.

A process of its own, started by the first user and by nothing but the standard library. Everybody who uses the server
holds a shared lock on `users.lock`. The guardian waits for the exclusive one: the kernel grants it when the last user
is gone, however it went, kill -9 included. Then the server is stopped in good order. A server that falls is started
again. Nothing here polls.

    guardian.py LOCK_FOLDER LOG_FILE SERVER_BINARY [ARGUMENT ...]

Writes `ready` to its standard output when the server accepts connections, or `failed` when it ended before.
"""

import contextlib
import ctypes
import fcntl
import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

_READY = b"ready to accept connections"  # Valkey begins the line with it, Redis on a socket does not
_LARGEST_LOG = 1_000_000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_FALLS_IN_A_ROW = 5
_STEADY_AFTER_S = 10


def _die_with_parent() -> None:
    """Where the kernel can do it: should the guardian itself be killed, the server gets a SIGTERM."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _say(word: str) -> None:
    """Tell the starter, who reads one line and may have gone already."""
    with contextlib.suppress(OSError):
        os.write(1, word.encode() + b"\n")


class Guardian:
    """One server, its log and its users."""

    def __init__(self, folder: Path, log_file: Path, command: list[str]) -> None:
        self._folder, self._log_file, self._command = folder, log_file, command
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._stopping = False
        self._server: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Hold the guardian's lock and serve until the last user has left, or the server cannot stand."""
        own_lock = _open(self._folder / "guardian.lock")
        fcntl.flock(own_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        threading.Thread(target=self._wait_for_last_user, daemon=True).start()
        falls = 0
        while self._start(own_lock):
            started = time.monotonic()
            self._copy_log()
            if self._stopping:
                break
            falls = 1 if time.monotonic() - started > _STEADY_AFTER_S else falls + 1
            if falls == _FALLS_IN_A_ROW or not self._ready.is_set():
                _say("failed")
                break
            time.sleep(0.05 * 2**falls)
        # Before the users' lock, which goes with this process: the newcomer who gets that one must not find us here.
        os.close(own_lock)

    def _start(self, own_lock: int) -> bool:
        """Start the server, unless it is time to go.

        It shares our lock: should we be killed, nobody starts another one before it has ended too.
        """
        with self._lock:
            if self._stopping:
                return False
            self._server = subprocess.Popen(  # noqa: S603 - the command comes from our own launcher
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(own_lock,),
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one call into the kernel, no lock
            )
            return True

    def _copy_log(self) -> None:
        """Keep the newest part of what the server says, notice when it is ready, return when it has ended."""
        assert self._server is not None
        assert self._server.stdout is not None
        log = self._open_log()
        for line in self._server.stdout:
            # On a full disk the line is lost: the server must not end because its log cannot be written.
            with contextlib.suppress(OSError):
                if log.tell() > _LARGEST_LOG:
                    log.close()
                    self._log_file.replace(self._log_file.with_suffix(".old.log"))
                    log = self._open_log()
                log.write(line)
            if _READY in line.lower() and not self._ready.is_set():
                self._ready.set()
                _say("ready")
        log.close()
        self._server.wait()

    def _open_log(self) -> io.FileIO:
        """Unbuffered: what could not be written is not written later either."""
        return io.FileIO(self._log_file, "ab")

    def _wait_for_last_user(self) -> None:
        """Block until the kernel grants what no living user denies, then stop the server."""
        self._ready.wait()
        fcntl.flock(_open(self._folder / "users.lock"), fcntl.LOCK_EX)
        with self._lock:
            self._stopping = True
            assert self._server is not None
            self._server.terminate()


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # nobody's child from here on: our starter need not reap us
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)  # the server's files and the log are for their owner alone
    Guardian(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]).run()
