"""The lease of this process, and the services that only one process of a deployment may run: those of the leader.

Messages and leadership depend on the lease. Code that holds something under the lease uses `Heartbeat.watch`. Its event
is set as soon as the lease ends by the clock of this process, before any other task runs. So a process that was frozen
does not act on what it has lost.

A process stands for election. An elected process runs the services until it is stopped (they drain, it resigns, and a
follower takes over at once) or until its lease ends (they are cancelled immediately). A follower blocks until the
leader resigns, is known to be dead, or may have lost its lease, or until the follower's own lease ends.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from datetime import timedelta

from tidegate.core.arguments import require_name
from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidArgument, LeaseLost, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import SCHEDULER_LEADER_ACTIVE
from tidegate.primitives.membership import Elected, Election, Following, Membership
from tidegate.runtime.outage import Outage
from tidegate.runtime.service import Restarts, Service, keep_running
from tidegate.runtime.waiting import end, first_of, occurs, unless

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


_SHORTEST_WAIT_S = 0.001
_FENCE: ContextVar[int] = ContextVar("leader_fence", default=0)


def leader_fence() -> int:
    """Fencing token of the leader for which the caller runs as a service of the leader; 0 outside of such a service.

    The service passes it to scripts and statements that must reject a leader that lost its lease.
    """
    return _FENCE.get()


class Leadership:
    """Runs the named services while this process is the leader; a service that fails is restarted."""

    def __init__(
        self,
        election: Election,
        heartbeat: Heartbeat,
        services: Mapping[str, Service],
        *,
        restarts: Restarts | None = None,
    ) -> None:
        if not services:
            raise InvalidArgument("services", services, "there is no service to run")
        self._services = {require_name("service", name): service for name, service in services.items()}
        self._election, self._heartbeat = election, heartbeat
        self._restarts = restarts or Restarts()
        self._news = asyncio.Event()
        self.fence: int | None = None
        """While this process leads: its fencing token, greater than that of any earlier leader."""

    def reconsider(self) -> None:
        """Stand for election now, because a process died that may have been the leader. No effect while leading."""
        self._news.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Stand, lead and follow until `stopping` is set."""
        while True:
            await first_of(stopping, self._heartbeat.alive)
            if stopping.is_set():
                return
            # Watched from before the election: if the lease ends during it, its outcome is void.
            with self._heartbeat.watch() as halt:
                # Cleared before the election: a death that is reported during it ends the next wait.
                self._news.clear()
                try:
                    outcome = await self._election.stand()
                except LeaseLost:
                    # The membership has ended on the server: join again, and then stand again.
                    self._heartbeat.assume_lost()
                    continue
                match outcome:
                    case Elected(fence):
                        await self._lead(fence, halt, stopping)
                    case Following(remaining_ms):
                        await self._follow(remaining_ms / 1000, halt, stopping)

    async def _follow(self, leader_lasts_s: float, halt: asyncio.Event, stopping: asyncio.Event) -> None:
        """Wait for a vacancy or the end of the own lease: a server that lost this lease may have lost the leader's."""
        settings = self._election.settings
        proof_s, retry_s = settings.proof.total_seconds(), settings.retry.total_seconds()
        # If the leader is late, stand several times until its lease ends: see `expire.lua`.
        late_s = min(leader_lasts_s, retry_s) if leader_lasts_s <= proof_s else leader_lasts_s - proof_s
        within_s = max(late_s, _SHORTEST_WAIT_S)
        # It ends with a vacancy, a reported death, the stop, or the end of the lease of this process.
        vacancy = unless(self._news, self._election.wait_for_vacancy(within_s))
        await unless(halt, unless(stopping, vacancy))

    async def _lead(self, fence: int, halt: asyncio.Event, stopping: asyncio.Event) -> None:
        """Run the services until `stopping` is set, or `halt`, which the heartbeat sets when the lease ends."""
        log.info("leader.elected", owner=self._election.owner, fence=fence)
        # Each service gets a copy of this context: it sees the fencing token of this term, whatever the others set.
        context = copy_context()
        context.run(_FENCE.set, fence)
        services = [
            asyncio.create_task(
                keep_running(name, service, halt, restarts=self._restarts), name=name, context=context.copy()
            )
            for name, service in self._services.items()
        ]
        self.fence = fence
        SCHEDULER_LEADER_ACTIVE.set(1)
        try:
            await first_of(stopping, halt)
            # Read before `halt` is set here: it decides between a cancellation and a drain.
            was_lost = halt.is_set()
            if not was_lost:
                halt.set()
                # The lease is valid, so the services may finish their work in progress.
                await asyncio.gather(*services)
        finally:
            self.fence = None
            SCHEDULER_LEADER_ACTIVE.set(0)
            # Cancels nothing after a drain. After a lost lease, another leader may run the services already.
            await end(*services)
        if was_lost:
            log.error("leader.lost", owner=self._election.owner, fence=fence)
        else:
            # Only after the services have ended: the successor begins at once.
            await self._resign(fence)

    async def _resign(self, fence: int) -> None:
        with suppress(Unavailable):  # leadership then ends with the membership
            await self._election.resign()
            log.info("leader.resigned", owner=self._election.owner, fence=fence)
