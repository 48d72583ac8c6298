"""Reports the death of a process of the same machine at once, instead of when its lease ends.

Each process holds a lock on its own file in the data folder. The operating system releases the lock when the process
ends, however it ends, and not before. A frozen or starved process keeps the lock; then its lease decides. On Linux the
kernel reports closed files of the folder (inotify), so nothing polls, and one descriptor serves any number of
processes. On other systems, and if the kernel has no watch left, the lease decides.
"""

import asyncio
import ctypes
import errno
import fcntl
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from tidegate.core.arguments import require_name
from tidegate.core.backoff import Backoff
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.waiting import occurs, unless

log = get_logger(__name__)

_UNFINISHED = ".new"
_OLD_S = 3600.0
_PAUSES = Backoff(first=timedelta(milliseconds=5), most=timedelta(seconds=5), jitter=0.0)
_LOOKS = 10
"""How often the lock of a closed file is tested: it is released a moment after the kernel reports the file."""


class ProcessDeathWatcher:
    """A service that holds the lock of this process and reports other processes of the folder that died.

    Add it first, so that it ends last: a process that shuts down has left the membership before it releases its lock.
    A process that could not leave counts as dead: its file stays, and the others report it.
    """

    def __init__(
        self,
        folder: Path,
        owner: str,
        report: Callable[[str], Awaitable[object]],
        *,
        has_left: Callable[[], bool],
    ) -> None:
        """`report` is awaited with the owner that died, and again after a pause if it raises `Unavailable`. At least
        one process of the folder reports a death, and often several. `has_left` is called at the end and returns
        whether this process is no longer registered."""
        self._folder, self._owner, self._report = folder, require_name("owner", owner), report
        self._has_left = has_left
        self._lock: int | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Hold the lock and watch the folder until `stopping` is set."""
        is_over = True
        try:
            self._hold()
            closed = _ClosedFiles(self._folder)
        except OSError as error:
            log.warning("process_deaths.unwatched", folder=str(self._folder), error=error.strerror or str(error))
            closed = None
        try:
            await (stopping.wait() if closed is None else self._watch(closed, stopping))
        except Exception:
            is_over = False  # the service is restarted, and the process is alive meanwhile: keep the lock
            raise
        finally:
            if closed is not None:
                closed.close()
            if is_over:
                self._release()

    async def _watch(self, closed: "_ClosedFiles", stopping: asyncio.Event) -> None:
        # The count is such that each file is tested once, since there is no close to wait for.
        looks = dict.fromkeys(self._others(), _LOOKS - 1)  # they may have died before this process started
        while not stopping.is_set():
            for owner in list(looks):
                looks[owner] += 1
                if await self._is_done_with(owner, looks[owner]):
                    del looks[owner]
            # While no file is under test, there is no timer: the kernel reports the next close.
            pause_s = min((_PAUSES.delay(count).total_seconds() for count in looks.values()), default=None)
            await unless(stopping, closed.wait(pause_s))
            looks |= dict.fromkeys(self._others(closed.taken()), 0)

    async def _is_done_with(self, owner: str, looks: int) -> bool:
        """Whether nothing is left to do: the process was reported as dead, or it is alive."""
        if not self._has_died(owner):
            return looks >= _LOOKS or not self._path(owner).exists()
        try:
            await self._report(owner)
        except Unavailable:
            return False
        # Only after the report: if this process dies before, another one finds the file and reports.
        self._path(owner).unlink(missing_ok=True)  # names of processes are not reused
        return True

    def _hold(self) -> None:
        """Take the lock. The file gets its name after it is locked; an unlocked file would mean a dead process."""
        if self._lock is not None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_unfinished()
        unfinished = self._folder / f"{self._owner}{_UNFINISHED}"
        lock = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unfinished.rename(self._path(self._owner))
        except BaseException:
            os.close(lock)
            unfinished.unlink(missing_ok=True)
            raise
        self._lock = lock

    def _remove_unfinished(self) -> None:
        """Remove files of processes that died before they renamed their file."""
        for path in self._folder.glob(f"*{_UNFINISHED}"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _OLD_S:
                    path.unlink()

    def _release(self) -> None:
        """Release the lock. If the process has left, its file is removed before, so that no death is reported."""
        lock, self._lock = self._lock, None
        if lock is not None:
            if self._has_left():
                with suppress(OSError):
                    self._path(self._owner).unlink(missing_ok=True)
            # Closing releases the lock, and is what the kernel reports to the others.
            os.close(lock)

    def _has_died(self, owner: str) -> bool:
        """Whether the file of the process exists and is not locked."""
        try:
            # For reading only: the kernel does not report its close to the watchers.
            descriptor = os.open(self._path(owner), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # A shared lock, so that two processes that test at the same time do not take each other for the owner.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _others(self, among: Iterable[str] | None = None) -> list[str]:
        """Names of other processes: of the given names, or all in the folder."""
        names = (path.name for path in self._folder.iterdir()) if among is None else among
        return sorted(name for name in names if name != self._owner and not name.endswith(_UNFINISHED))

    def _path(self, owner: str) -> Path:
        return self._folder / owner


class _ClosedFiles:
    """Collects the names of files that were open for writing and were closed, by inotify(7)."""

    _CLOSE_WRITE = 0x8
    _OVERFLOW = 0x4000
    _HEAD = struct.Struct("iIII")
    _AT_ONCE = 64 * 1024

    def __init__(self, folder: Path) -> None:
        """Raises `OSError` if the kernel does not support it or has no watch left."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, f"{sys.platform} cannot report closed files")
        self._names: set[str] = set()
        self._overflowed = False
        self._news = asyncio.Event()
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        if libc.inotify_add_watch(self._descriptor, os.fsencode(folder), self._CLOSE_WRITE) < 0:
            number = ctypes.get_errno()
            os.close(self._descriptor)
            raise OSError(number, os.strerror(number))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)

    async def wait(self, within_s: float | None) -> None:
        """Wait until there are names to take, or `within_s` seconds passed."""
        await (self._news.wait() if within_s is None else occurs(self._news, within_s=within_s))

    def taken(self) -> set[str] | None:
        """Return the names since the last call; None if there were too many to report."""
        names, self._names = None if self._overflowed else self._names, set()
        self._overflowed = False
        self._news.clear()
        return names

    def close(self) -> None:
        """Stop watching and close the descriptor."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _read(self) -> None:
        for mask, name in self._events(os.read(self._descriptor, self._AT_ONCE)):
            self._overflowed |= bool(mask & self._OVERFLOW)
            if name:
                self._names.add(name)
        self._news.set()

    def _events(self, read: bytes) -> Iterator[tuple[int, str]]:
        at = 0
        while at < len(read):
            _, mask, _, size = self._HEAD.unpack_from(read, at)
            at += self._HEAD.size + size
            # The kernel pads names with zero bytes.
            yield mask, os.fsdecode(read[at - size : at].rstrip(b"\0"))
