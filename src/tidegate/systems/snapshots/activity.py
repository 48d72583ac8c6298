"""Notes which subjects are read, in batches: prefetching goes by it."""

import asyncio
from datetime import datetime, timedelta

from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import occurs
from tidegate.storage.sql import Database
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.local import Place
from tidegate.systems.snapshots.subject import Subject

log = get_logger(__name__)

_GATHER = timedelta(seconds=30)
_MOST = 10_000


class Activity:
    """When subjects were last asked for. Half a minute of it may be lost; nothing depends on it but priorities."""

    def __init__(self, database: Database, clock: Clock, *, gather: timedelta = _GATHER) -> None:
        self._database, self._clock, self._gather_s = database, clock, gather.total_seconds()
        self._asked: dict[Place, datetime] = {}
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._outage = Outage("snapshots.activity")

    def note(self, place: Place) -> None:
        """It was asked for now."""
        self._asked[place] = self._clock.now()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="note what is read")
        elif len(self._asked) >= _MOST:
            self._asked.pop(next(iter(self._asked)))

    async def close(self) -> None:
        """Write what is left."""
        self._closing.set()
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        try:
            while self._asked:
                await occurs(self._closing, within_s=self._gather_s)
                asked, self._asked = self._asked, {}
                await self._database.transaction(
                    store.touch_asked, {Subject(kind, key): at for (kind, key), at in asked.items()}
                )
        except Unavailable as error:
            self._outage.note(error)
        except TidegateError as error:
            log.warning("snapshots.activity_lost", error=str(error))
        else:
            self._outage.over()
        finally:
            self._writing = None
