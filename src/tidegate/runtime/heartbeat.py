"""The sign of life of this process, which carries its workers' messages and its lead.

Whoever holds something by virtue of being alive watches: the event is set in the very moment in which the lease ends by
our own clock, before any other task runs, so that even a process that was frozen for a minute acts on nothing it lost.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import timedelta

from tidegate.core.backoff import Backoff
from tidegate.core.errors import LeaseLost, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.membership import Membership
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import occurs, unless

log = get_logger(__name__)

_FIRST_PAUSE = timedelta(milliseconds=200)
_LEAVE_WITHIN_S = 2.0


class Heartbeat:
    """Joins, renews in time, joins again when it came too late, leaves at the end."""

    def __init__(self, membership: Membership, *, may_leave: Callable[[], bool] = lambda: True) -> None:
        """`may_leave` is called at the end; where it returns False, something may still be held, and the process counts
        as dead: then others take over what it held."""
        self.alive = asyncio.Event()
        """Set while our lease certainly lasts."""
        self.has_left = True
        """Whether this process is certainly not registered: it never tried to join, or it left in good order."""
        self._presence, self._may_leave = membership, may_leave
        self._is_member = False
        self._watchers: set[asyncio.Event] = set()
        self._wanted = asyncio.Event()
        self._lease_end: asyncio.TimerHandle | None = None
        # Shorter than those of others: when the server accepts writes again, the lease ends unless it is renewed.
        retry = membership.settings.retry
        self._outage = Outage("heartbeat", pauses=Backoff(first=min(_FIRST_PAUSE, retry), most=retry, jitter=0.5))

    @contextmanager
    def watch(self) -> Generator[asyncio.Event]:
        """An event that is set when the lease ends, or ended without our notice: what was held by it is lost.

        It stays set though a new lease begins.
        """
        lost = asyncio.Event()
        self._watchers.add(lost)
        try:
            yield lost
        finally:
            self._watchers.discard(lost)

    def assume_lost(self) -> None:
        """Somebody heard from the server that we are not there: count as lost, and join again now."""
        self._lose("the server does not know us")
        self._wanted.set()

    def renew_now(self) -> None:
        """Somebody has reason to believe that the server forgot things: find out now whether it forgot us."""
        self._wanted.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Beat until told to stop, then leave. Stop it last: whoever relies on being alive must have ended."""
        pause_s = self._presence.settings.renew_every.total_seconds()
        try:
            while not stopping.is_set():
                self._wanted.clear()
                await unless(stopping, self._beat())
                await unless(stopping, occurs(self._wanted, within_s=pause_s))
            self.alive.clear()
            if self._may_leave():
                await self._leave()
        finally:
            self._lose("nobody renews it any more")

    async def _beat(self) -> None:
        """Give one sign of life, however many tries it takes."""
        await self._outage.retry(self._sign)

    async def _sign(self) -> None:
        if self._is_member:
            try:
                if not await self._presence.renew():
                    self._lose("it was renewed too late")
            except LeaseLost:
                self._is_member = False
                self._lose("we were counted as dead")
        if not self._is_member:
            self.has_left = False
            await self._presence.join()
            self._is_member = True
        self._live()

    def _live(self) -> None:
        """Note that the lease lasts, and set the alarm for its end."""
        if self._lease_end is not None:
            self._lease_end.cancel()
        remaining_s = self._presence.remaining_ms / 1000
        self._lease_end = asyncio.get_running_loop().call_later(remaining_s, self._lose, "it was not renewed in time")
        self.alive.set()

    def _lose(self, reason: str) -> None:
        if self._lease_end is not None:
            self._lease_end.cancel()
        for lost in self._watchers:
            lost.set()
        if self.alive.is_set():
            self.alive.clear()
            log.error("heartbeat.lost", owner=self._presence.owner, reason=reason)

    async def _leave(self) -> None:
        self._is_member = False
        with suppress(Unavailable, TimeoutError):  # then `ProcessDeathWatcher` has us reported, or the lease ends
            async with asyncio.timeout(_LEAVE_WITHIN_S):
                await self._presence.leave()
                self.has_left = True
