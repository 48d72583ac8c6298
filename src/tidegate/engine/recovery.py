"""Makes the gate agree with SQL: everything unfinished is offered, and what is inside already is left as it is.

Always correct, at any moment. Done when a leader begins, when the server has lost its data, when a process died, and,
for one run, when a message turns out to belong to a job that has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from tidegate.engine import allowance_records, claims, job_store, parked_answer_store, runs
from tidegate.engine.gate_jobs import Barred, none_barred, to_gate_jobs
from tidegate.engine.job_store import StoredJob
from tidegate.engine.lifecycle import OPEN_RUNS
from tidegate.primitives.gate import Gate, Job
from tidegate.runtime.waiting import unless
from tidegate.storage.sql import Database, Transaction

_PAGE = 500


class Recovery:
    """Offers the jobs of some sources to their gate again; runs of other sources have another gate.

    Without `sources`, for tests, all runs belong to this gate.
    """

    def __init__(
        self,
        database: Database,
        gate: Gate,
        *,
        sources: Collection[str] | None = None,
        barred: Barred = none_barred,
    ) -> None:
        self._database, self._gate, self._barred = database, gate, barred
        self._sources = None if sources is None else frozenset(sources)

    async def offer_run(self, run_id: int) -> int:
        """Offer what is unfinished of one run; return how much of it was missing."""
        return sum([await self._gate.enqueue(jobs) async for jobs in self._unfinished([run_id])])

    async def offer_jobs(self, job_ids: Sequence[int]) -> int:
        """Offer those of these jobs that are unfinished; return how many of them were missing."""
        missing = 0
        for start in range(0, len(job_ids), _PAGE):
            jobs = await self._database.read(job_store.unfinished_of, job_ids[start : start + _PAGE])
            missing += await self._gate.enqueue(self._to_gate(jobs)) if jobs else 0
        return missing

    async def forget_jobs(self, job_ids: Sequence[int]) -> None:
        """Have the gate forget jobs that ended without a worker.

        Until then it had them: whoever had one done again meanwhile offered it in vain, and so it is offered again.
        """
        await self._gate.forget([str(job_id) for job_id in job_ids])
        await self.offer_jobs(job_ids)

    async def remind_gate(self) -> None:
        """Tell the gate what it must not find out by breaking a rule of the upstream, should it have forgotten that.

        One that has not is not changed. To ask it first would be in vain: it may forget in the very next moment.
        """
        for memory in await self._database.read(allowance_records.memories, self._sources):
            await self._gate.remind(memory)

    async def offer_everything(self) -> int:
        """Free permits whose message is gone, and offer what is unfinished of every run."""
        await self._database.transaction(_sweep)
        active = await self._database.read(runs.active)
        ours = [run for run in active if self._sources is None or run.source in self._sources]
        open_runs = [run.id for run in ours if run.status in OPEN_RUNS]
        return await self._gate.rebuild(self._unfinished(open_runs))

    def _to_gate(self, jobs: Sequence[StoredJob]) -> list[Job]:
        return to_gate_jobs(jobs, now=self._database.clock.now(), barred=self._barred)

    async def _unfinished(self, run_ids: list[int]) -> AsyncIterator[list[Job]]:
        after = 0
        while run_ids:
            jobs = await self._database.read(job_store.unfinished, run_ids, after, _PAGE)
            yield self._to_gate(jobs)
            if len(jobs) < _PAGE:
                return
            after = jobs[-1].id


def _sweep(tx: Transaction) -> None:
    """Remove what is out of date: parked answers, notes on allowances, and waits for runs that are over."""
    parked_answer_store.sweep(tx)
    allowance_records.sweep(tx)
    claims.release_all(tx)


class RecoveryDuty:
    """A duty of the leader: recovers when it begins, and whenever a process died.

    A server that lost its data has lost the leader's lease too, so a leader begins anew, and with it this duty.
    """

    def __init__(self, recovery: Recovery, enrol_credentials: Callable[[], Awaitable[None]]) -> None:
        self._recovery, self._enrol_credentials = recovery, enrol_credentials
        self._needed = asyncio.Event()

    def notify(self) -> None:
        """Something may have been lost: look."""
        self._needed.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Recover now and at each ring, until told to stop."""
        self._needed.set()
        while not stopping.is_set():
            await unless(stopping, self._needed.wait())
            if self._needed.is_set():
                self._needed.clear()
                await self._recovery.remind_gate()  # before anybody can be let out
                await self._enrol_credentials()
                await self._recovery.offer_everything()
