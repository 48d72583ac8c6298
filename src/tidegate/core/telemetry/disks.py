"""Full disks: one log line when a disk is full, and one when writes succeed again.

Everything in a process that writes to a disk shares one `Disk`, so that a full disk is reported once and not by each
writer. The writers try again with growing pauses and log nothing of their own (`Unavailable.is_reported`).
"""

import shutil
import time
from functools import cache
from pathlib import Path

from tidegate.core.errors import NoSpaceLeft
from tidegate.core.telemetry.logs import get_logger

log = get_logger(__name__)

_MB = 1024 * 1024
_FREED_MB = 1
"""How much more must be free than at the last failure before one successful write counts as the end."""
_QUIET_S = 60.0
"""Without a failure for this long, a successful write counts as the end, whatever the free space is (quotas)."""


def free_mb(folder: Path) -> int:
    """Free space in `folder` for this user, in MB."""
    return shutil.disk_usage(folder).free // _MB


class Disk:
    """The disk of `folder`, or of a server if there is no `folder`. `place` names it in errors and in the log."""

    def __init__(self, place: str, folder: Path | None = None) -> None:
        self._place, self._folder = place, folder
        self._failed_at: float | None = None
        self._freed_at: float | None = None
        self._free_mb: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether a write failed for lack of space, and none has succeeded since."""
        return self._failed_at is not None

    @property
    def is_short(self) -> bool:
        """Whether so little space is free that an unclear write error is attributed to it."""
        free = self._free()
        return free is not None and free < _FREED_MB

    def refused(self) -> NoSpaceLeft:
        """Return the error for a write that failed for lack of space. The first one is logged.

        A server may report a failure from before the space was freed. That is not a new condition.
        """
        self._free_mb = self._free()
        error = NoSpaceLeft(self._place, free_mb=self._free_mb)
        if self._is_late():
            return error
        if self._failed_at is None:
            log.error("disk.filled", error=str(error), remedy="Free some space; the work continues by itself")
        self._failed_at = time.monotonic()
        return error

    def accepted(self) -> None:
        """Record a success. If space was freed, the condition ends.

        One success alone proves nothing: on a full disk small writes succeed between large ones that fail.
        """
        if self._failed_at is None:
            return
        now_free = self._free()
        # Compared with the free space at the last failure.
        was_freed = now_free is not None and self._free_mb is not None and now_free >= self._free_mb + _FREED_MB
        if was_freed or time.monotonic() - self._failed_at >= _QUIET_S:
            self._failed_at, self._freed_at = None, time.monotonic()
            log.warning("disk.freed", place=self._place, free_mb=now_free)

    def _is_late(self) -> bool:
        was_freed = self._freed_at is not None and time.monotonic() - self._freed_at < _QUIET_S
        return was_freed and not self.is_full and self._free_mb is not None and self._free_mb >= _FREED_MB

    def _free(self) -> int | None:
        """Return the free space in MB; None if it cannot be read."""
        try:
            return None if self._folder is None else free_mb(self._folder)
        except OSError:
            return None


@cache
def disk_of(folder: Path) -> Disk:
    """Return the shared `Disk` of a folder of this machine."""
    return Disk(str(folder), folder)
