"""What only one process of a deployment may do, and how it comes to be the one.

A process stands for election; elected, it runs the duties until it is told to stop (they drain, it resigns, and a
follower takes over at once) or its lease ends (they are cancelled there and then). A follower blocks until the leader
resigns, is known to be dead, or its lease can have ended, or until its own has.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar, copy_context

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, LeaseLost, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import SCHEDULER_LEADER_ACTIVE
from tidegate.primitives.membership import Elected, Election, Following
from tidegate.runtime.heartbeat import Heartbeat
from tidegate.runtime.service import Restarts, Service, keep_running
from tidegate.runtime.waiting import end, first_of, unless

log = get_logger(__name__)

_SHORTEST_WAIT_S = 0.001
_FENCE: ContextVar[int] = ContextVar("leader_fence", default=0)


def leader_fence() -> int:
    """Fencing number of the leader as whose duty the caller runs; 0 outside of a duty.

    A duty passes it to whatever must refuse a leader that lost its lease.
    """
    return _FENCE.get()


class Leadership:
    """Runs the duties, by name, whenever this process leads; a duty that falls is started again."""

    def __init__(
        self,
        election: Election,
        heartbeat: Heartbeat,
        duties: Mapping[str, Service],
        *,
        restarts: Restarts | None = None,
    ) -> None:
        if not duties:
            raise InvalidArgument("duties", duties, "a leader without duties leads nothing")
        self._duties = {require_name("duty", name): duty for name, duty in duties.items()}
        self._election, self._heartbeat = election, heartbeat
        self._restarts = restarts or Restarts()
        self._news = asyncio.Event()
        self.fence: int | None = None
        """While we lead: greater than the fence of any leader before us."""

    def reconsider(self) -> None:
        """A process died: if it was the leader, stand now. Does nothing while we lead."""
        self._news.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Stand, lead or follow, again and again, until told to stop."""
        while True:
            await first_of(stopping, self._heartbeat.alive)
            if stopping.is_set():
                return
            # Watched from before the election: a lease that ends while we stand makes its outcome worthless.
            with self._heartbeat.watch() as halt:
                self._news.clear()
                try:
                    outcome = await self._election.stand()
                except LeaseLost:
                    self._heartbeat.assume_lost()
                    continue
                match outcome:
                    case Elected(fence):
                        await self._lead(fence, halt, stopping)
                    case Following(remaining_ms):
                        await self._follow(remaining_ms / 1000, halt, stopping)

    async def _follow(self, leader_lasts_s: float, halt: asyncio.Event, stopping: asyncio.Event) -> None:
        """Wait for a vacancy, unless our own lease ends: a server that forgot us may have forgotten the leader too."""
        settings = self._election.settings
        proof_s, retry_s = settings.proof.total_seconds(), settings.retry.total_seconds()
        # Where the leader is late, stand several times until its lease ends: see `expire.lua`.
        late_s = min(leader_lasts_s, retry_s) if leader_lasts_s <= proof_s else leader_lasts_s - proof_s
        within_s = max(late_s, _SHORTEST_WAIT_S)
        vacancy = unless(self._news, self._election.wait_for_vacancy(within_s))
        await unless(halt, unless(stopping, vacancy))

    async def _lead(self, fence: int, halt: asyncio.Event, stopping: asyncio.Event) -> None:
        """Run the duties until `stopping` or `halt`, which the heartbeat sets when our lease ends."""
        log.info("leader.elected", owner=self._election.owner, fence=fence)
        context = copy_context()
        context.run(_FENCE.set, fence)
        duties = [
            asyncio.create_task(
                keep_running(name, duty, halt, restarts=self._restarts), name=name, context=context.copy()
            )
            for name, duty in self._duties.items()
        ]
        self.fence = fence
        SCHEDULER_LEADER_ACTIVE.set(1)
        try:
            await first_of(stopping, halt)
            was_lost = halt.is_set()
            if not was_lost:
                halt.set()
                await asyncio.gather(*duties)
        finally:
            self.fence = None
            SCHEDULER_LEADER_ACTIVE.set(0)
            await end(*duties)
        if was_lost:
            log.error("leader.lost", owner=self._election.owner, fence=fence)
        else:
            await self._resign(fence)

    async def _resign(self, fence: int) -> None:
        with suppress(Unavailable):  # the lead then ends with our membership
            await self._election.resign()
            log.info("leader.resigned", owner=self._election.owner, fence=fence)
