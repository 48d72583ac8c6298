"""Moves old history every night, and sees to the age of its files.

The leader's timekeeper calls, and sleeps until then.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from tidegate.core.errors import InvalidSettings, ServerRefused
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Database
from tidegate.systems.snapshots.archive import mover
from tidegate.systems.snapshots.archive.mover import Mover, Storage
from tidegate.systems.snapshots.archive.settings import ArchiveSettings

if TYPE_CHECKING:
    from tidegate.systems.snapshots.archive.lifecycle import Lifecycle

log = get_logger(__name__)

_DAY = timedelta(days=1)


class NightlyArchive:
    """A source of the timekeeper. A night in which no process ran is made up for when the next leader starts."""

    def __init__(
        self,
        database: Database,
        open_storage: Callable[[], Storage],
        settings: ArchiveSettings,
        open_lifecycle: Callable[[], "Lifecycle | None"] = lambda: None,
    ) -> None:
        """`open_storage` is called when there is something to move, `open_lifecycle` when something was moved."""
        self._database, self._open_storage, self._settings = database, open_storage, settings
        self._open_lifecycle, self._is_aged = open_lifecycle, False
        self._due_at: datetime | None = None
        self._mover: Mover | None = None

    async def fire(self) -> int | None:
        """Move a part, if it is time; return in how many ms there is more to do."""
        now = self._database.clock.now()
        if self._due_at is None:
            self._due_at = now if await self._missed_a_night(now) else next_night(now, self._settings)
        if now >= self._due_at:
            if await self._move_some(now):
                return 0
            self._due_at, self._is_aged = next_night(now, self._settings), False
        if not self._is_aged:  # every night, and when a process begins to lead
            if await self._age_some(now):
                return 0
            self._is_aged = True
        return max(0, math.ceil((self._due_at - now) / timedelta(milliseconds=1)))

    async def _move_some(self, now: datetime) -> bool:
        older_than = now - self._settings.after
        oldest = await self._database.read(mover.oldest_day)
        if oldest is None or oldest >= mover.first_day_kept(older_than):
            return False
        self._mover = self._mover or Mover(self._database, self._open_storage())
        return await self._mover.move_some(older_than) > 0

    async def _age_some(self, now: datetime) -> bool:
        """See that old files become cold and are deleted; True where there is more of it."""
        from tidegate.systems.snapshots.archive import lifecycle  # here, since it needs the extra

        today, settings = now.astimezone(UTC).date(), self._settings
        if not await self._database.read(lifecycle.has_files):
            return False
        try:
            applied = self._open_lifecycle()
            has_more = applied is not None and await applied.apply(today)
        except (ServerRefused, InvalidSettings) as error:  # an operator has to act; moving goes on meanwhile
            log.warning("archive.lifecycle_refused", error=str(error))
            return False
        if has_more or settings.delete_after is None:
            return has_more
        # Behind the files: a file without a row is deleted all the same, a row without a file is read as empty.
        return await self._database.transaction(lifecycle.forget_deleted, today - settings.delete_after) > 0

    async def _missed_a_night(self, now: datetime) -> bool:
        oldest = await self._database.read(mover.oldest_day)
        return oldest is not None and oldest < mover.first_day_kept(now - self._settings.after - _DAY)

    def __repr__(self) -> str:
        return f"NightlyArchive({self._settings.at})"


def next_night(now: datetime, settings: ArchiveSettings) -> datetime:
    """The next time of day at which the archive is due, in UTC."""
    zone = ZoneInfo(settings.timezone)
    today = now.astimezone(zone).date()
    times = (datetime.combine(today + n * _DAY, settings.time_of_day, zone).astimezone(UTC) for n in range(3))
    return next(moment for moment in times if moment > now)
