"""Tells the gate what was committed: permits end, follow-ups are offered. Rounds go on meanwhile."""

import asyncio
from collections.abc import Callable, Sequence

from tidegate.core.clock import Clock
from tidegate.engine.gate_jobs import Barred, none_barred, to_gate_jobs
from tidegate.engine.job_results import JobResult
from tidegate.engine.job_store import StoredJob
from tidegate.engine.lifecycle import JobState
from tidegate.engine.recovery import Recovery
from tidegate.primitives.gate import Gate
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end

_MOST_AT_ONCE = 4
_MOST_PER_CALL = 500


class Settling:
    """Settles a few rounds at once; `on_settled` is told of each, when nothing more has to be done for it."""

    def __init__(
        self,
        gate: Gate,
        recovery: Recovery,
        clock: Clock,
        on_settled: Callable[[Sequence[JobResult]], None],
        *,
        barred: Barred = none_barred,
    ) -> None:
        self._gate, self._recovery, self._clock, self._on_settled = gate, recovery, clock, on_settled
        self._barred = barred
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()
        self._outage = Outage("collect.settle")

    async def begin(
        self, finished: Sequence[JobResult], late: Sequence[JobResult], offers: Sequence[StoredJob]
    ) -> None:
        """Settle what was committed, as soon as there is room. Of `late` results, whatever they led to is offered."""
        await self._room.acquire()
        task = asyncio.create_task(self._run(finished, late, offers), name="settle")
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Stop, whatever is under way."""
        await end(*self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.release()

    async def _run(self, finished: Sequence[JobResult], late: Sequence[JobResult], offers: Sequence[StoredJob]) -> None:
        every = [*finished, *late]

        async def settle() -> None:
            await self._settle(every, {one.ending.claim.job.run_id for one in late}, offers)
            await self._offer_again([*(one for one in finished if one.ending.state is JobState.FAILED), *late])

        await self._outage.retry(settle)
        self._on_settled(every)

    async def _settle(self, every: Sequence[JobResult], runs: set[int], offers: Sequence[StoredJob]) -> None:
        """Offers first: after the acknowledgement nobody would come back to them."""
        for run_id in sorted(runs):
            await self._recovery.offer_run(run_id)
        last = max(0, len(offers) - _MOST_PER_CALL)
        for start in range(0, last, _MOST_PER_CALL):
            part = offers[start : min(start + _MOST_PER_CALL, last)]
            await self._gate.enqueue(to_gate_jobs(part, now=self._clock.now(), barred=self._barred))
        follow_ups = to_gate_jobs(offers[last:], now=self._clock.now(), barred=self._barred)
        await self._gate.settle([one.settlement for one in every], follow_ups=follow_ups)

    async def _offer_again(self, ended: Sequence[JobResult]) -> None:
        """Until now these were inside: whoever had one of them done again meanwhile offered it in vain."""
        if ended:
            await self._recovery.offer_jobs([one.ending.claim.job.id for one in ended])
