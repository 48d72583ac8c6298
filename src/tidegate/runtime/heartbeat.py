"""Renews the lease of this process, on which its messages and its leadership depend.

Code that holds something under the lease uses `Heartbeat.watch`. Its event is set as soon as the lease ends by the
clock of this process, before any other task runs. So a process that was frozen does not act on what it has lost.
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
    """Joins the membership, renews the lease, joins again if it ended, and leaves at the end."""

    def __init__(self, membership: Membership, *, may_leave: Callable[[], bool] = lambda: True) -> None:
        """`may_leave` is called at the end. If it returns False, something may still be held: the process does not
        leave, counts as dead, and other processes take over what it held."""
        self.alive = asyncio.Event()
        """Set while the lease is certainly valid."""
        self.has_left = True
        """Whether this process is certainly not registered: it never tried to join, or it left."""
        self._membership, self._may_leave = membership, may_leave
        self._is_member = False
        self._watchers: set[asyncio.Event] = set()
        self._wanted = asyncio.Event()
        self._lease_end: asyncio.TimerHandle | None = None
        # Shorter pauses than elsewhere: once the server accepts writes again, the lease ends unless it is renewed.
        retry = membership.settings.retry
        self._outage = Outage("heartbeat", pauses=Backoff(first=min(_FIRST_PAUSE, retry), most=retry, jitter=0.5))

    @contextmanager
    def watch(self) -> Generator[asyncio.Event]:
        """An event that is set when the lease ends: what was held under it is lost.

        It stays set when a new lease begins.
        """
        lost = asyncio.Event()
        self._watchers.add(lost)
        try:
            yield lost
        finally:
            self._watchers.discard(lost)

    def assume_lost(self) -> None:
        """Treat the lease as lost, because the server does not know this process, and join again now."""
        self._lose("the server does not know this process")
        self._wanted.set()

    def renew_now(self) -> None:
        """Renew at once, because the server may have lost data: this finds out whether it lost the lease."""
        self._wanted.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Renew until `stopping` is set, then leave. Stop it last, after all services that depend on the lease."""
        pause_s = self._membership.settings.renew_every.total_seconds()
        try:
            while not stopping.is_set():
                # Cleared before the renewal: a request that arrives meanwhile causes another one.
                self._wanted.clear()
                await unless(stopping, self._outage.retry(self._renew))
                await unless(stopping, occurs(self._wanted, within_s=pause_s))
            self.alive.clear()
            # A process that leaves is not recovered. If work was cut off, it has to count as dead.
            if self._may_leave():
                await self._leave()
        finally:
            self._lose("the heartbeat stopped")

    async def _renew(self) -> None:
        if self._is_member:
            try:
                if not await self._membership.renew():
                    self._lose("it was renewed too late")
            except LeaseLost:
                self._is_member = False
                self._lose("the process was declared dead")
        if not self._is_member:
            # Before the attempt: a join without a reply may have registered the process.
            self.has_left = False
            await self._membership.join()
            self._is_member = True
        self._extend()

    def _extend(self) -> None:
        """Record that the lease is valid, and set the timer for its end."""
        if self._lease_end is not None:
            self._lease_end.cancel()
        # Counted from when the renewal was sent: the server counts from later, so the lease is valid until then.
        remaining_s = self._membership.remaining_ms / 1000
        self._lease_end = asyncio.get_running_loop().call_later(remaining_s, self._lose, "it was not renewed in time")
        self.alive.set()

    def _lose(self, reason: str) -> None:
        if self._lease_end is not None:
            self._lease_end.cancel()
        # Set at once, without an await: what runs next already sees that the lease is lost.
        for lost in self._watchers:
            lost.set()
        if self.alive.is_set():
            self.alive.clear()
            log.error("heartbeat.lost", owner=self._membership.owner, reason=reason)

    async def _leave(self) -> None:
        # Whatever the reply is, the lease is not renewed any more.
        self._is_member = False
        # After a failure, `ProcessDeathWatcher` of another process reports the death, or the lease ends.
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_LEAVE_WITHIN_S):
                await self._membership.leave()
                self.has_left = True
