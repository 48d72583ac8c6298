"""Runs the embedded server as long as at least one process uses it.

A separate process, started by the first user, that needs only the standard library. Every process that uses the server
holds a shared lock on `users.lock`. The guardian waits for the exclusive lock, which the kernel grants when the last
user has ended, even by kill -9. Then it shuts the server down gracefully. A server that fails is restarted. Nothing
polls.

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
    """Ask the kernel (Linux) to send SIGTERM to the server if the guardian is killed."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _say(word: str) -> None:
    """Write a line to the process that started the guardian, which may have ended already."""
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
        """Hold the guardian's lock and run the server until the last user has ended or the server keeps failing."""
        own_lock = _open(self._folder / "guardian.lock")
        # Fails if there is a guardian already. The launcher holds the start lock, so there is none in normal operation.
        fcntl.flock(own_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        threading.Thread(target=self._wait_for_last_user, daemon=True).start()
        falls = 0
        while self._start(own_lock):
            started = time.monotonic()
            self._copy_log()
            # The server ended because of this signal, and did not crash.
            if self._stopping:
                break
            # A server that ran for a while has recovered from earlier failures.
            falls = 1 if time.monotonic() - started > _STEADY_AFTER_S else falls + 1
            if falls == _FALLS_IN_A_ROW or not self._ready.is_set():
                _say("failed")
                break
            # A growing pause, in which the cause may pass.
            time.sleep(0.05 * 2**falls)
        # Released before the users' lock, which ends with this process: its next holder must not find this guardian.
        os.close(own_lock)

    def _start(self, own_lock: int) -> bool:
        """Start the server, unless the guardian is stopping.

        The server inherits the lock: if the guardian is killed, no other server starts before this one has ended too.
        """
        # Otherwise the other thread could stop the former server while a new one is being started here.
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
        """Keep the newest part of the server's log, notice when the server is ready, and return when it has ended."""
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
        """Open the log unbuffered, so that lines that could not be written are not written later."""
        return io.FileIO(self._log_file, "ab")

    def _wait_for_last_user(self) -> None:
        """Block until the kernel grants the exclusive lock, then stop the server."""
        # Before that, there may be no server that could be told to stop.
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
        os._exit(0)  # the guardian has no parent from here on, so the starter does not have to reap it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)  # the server's files and the log are for their owner alone
    Guardian(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]).run()
