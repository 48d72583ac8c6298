"""Keeps the gate in agreement with SQL, the source of truth.

`to_gate_jobs` maps rows to jobs of the gate. `PermitSettler` runs after each commit: it enqueues follow-up jobs and
settles permits. `Recovery` enqueues everything unfinished again. Enqueueing is idempotent, so recovery is correct at
any time. It runs when a leader begins, when the server lost its data, when a process died, and for one run when a
message turns out to belong to a job that has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

from tidegate.core.clock import Clock, milliseconds
from tidegate.engine import allowance_records, claims, job_store, parked_answer_store, runs
from tidegate.engine.job_store import JobResult, StoredJob
from tidegate.engine.lifecycle import OPEN_RUNS, JobState
from tidegate.primitives.gate import Gate, Job
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, unless
from tidegate.storage.sql import Database, Transaction

_MOST_SETTLING = 4
_MOST_PER_CALL = 500

ExcludedCredentials = Callable[[StoredJob], Sequence[str]]
"""Returns the credentials that must not make the call of a job, as far as this process knows. Must not block."""


def exclude_none(_job: StoredJob) -> Sequence[str]:
    """Allow every credential of the pool to make the call."""
    return ()


def to_gate_jobs(
    jobs: Iterable[StoredJob], *, now: datetime, excluded: ExcludedCredentials = exclude_none
) -> list[Job]:
    """Return the gate's view of `jobs`. A job's name is its number in SQL, so enqueueing it again changes nothing.

    A job without an affinity of its own prefers the credential that has the ETag: for it, an unchanged list is free.
    """
    return [
        Job(
            job=str(job.id),
            pool=job.pool,
            run=str(job.run_id),
            bucket=job.spec.bucket,
            priority=job.spec.priority,
            cost=job.spec.cost,
            affinity=job.spec.affinity or job.holder or "",
            excluded=tuple(excluded(job)),
            # A delay and not a time, because the gate counts it by the clock of its server.
            delay_ms=0 if job.not_before is None else max(0, milliseconds(job.not_before - now)),
        )
        for job in jobs
    ]


class Recovery:
    """Enqueues the unfinished jobs of `sources` again; runs of other sources have another gate.

    Without `sources`, for tests, all runs belong to this gate.
    """

    def __init__(
        self,
        database: Database,
        gate: Gate,
        *,
        sources: Collection[str] | None = None,
        excluded: ExcludedCredentials = exclude_none,
    ) -> None:
        self._database, self._gate, self._excluded = database, gate, excluded
        self._sources = None if sources is None else frozenset(sources)

    async def offer_run(self, run_id: int) -> int:
        """Enqueue the unfinished jobs of one run; return how many were missing."""
        return sum([await self._gate.enqueue(jobs) async for jobs in self._unfinished([run_id])])

    async def offer_affected_runs(self, job_ids: Sequence[int]) -> None:
        """Enqueue what the ends of these jobs were to enqueue: jobs of their runs, and of runs that waited for them."""
        for run_id in await self._database.read(claims.affected_runs, job_ids):
            await self.offer_run(run_id)

    async def offer_jobs(self, job_ids: Sequence[int]) -> int:
        """Enqueue those of these jobs that are unfinished; return how many were missing."""
        missing = 0
        for start in range(0, len(job_ids), _MOST_PER_CALL):
            jobs = await self._database.read(job_store.unfinished_of, job_ids[start : start + _MOST_PER_CALL])
            missing += await self._gate.enqueue(self._to_gate(jobs)) if jobs else 0
        return missing

    async def forget_jobs(self, job_ids: Sequence[int]) -> None:
        """Remove jobs that ended without a worker from the gate.

        A job that was retried before the removal was still known to the gate, so its enqueueing had no effect. It is
        enqueued again here.
        """
        await self._gate.forget([str(job_id) for job_id in job_ids])
        await self.offer_jobs(job_ids)

    async def forget_failed(self, failed: Mapping[int, Sequence[int]]) -> None:
        """Remove the jobs of runs that `runs.fail_pool` failed, and enqueue jobs of other runs that waited for them."""
        # The failure of the runs is committed, as `release_late` requires.
        released = await self._database.transaction(claims.release_late, list(failed))
        await self.forget_jobs([job_id for ids in failed.values() for job_id in ids])
        await self.offer_jobs([job.id for job in released])

    async def remind_gate(self) -> None:
        """Restore the limits that SQL knows to the gate. A gate that still has them is not changed.

        The gate is not asked first whether it lost its data: it could lose them right after the answer.
        """
        for memory in await self._database.read(allowance_records.memories, self._sources):
            await self._gate.remind(memory)

    async def offer_everything(self) -> int:
        """Free permits without a message, and enqueue the unfinished jobs of every run."""
        # Before the jobs are read: those that are released here are then among them.
        await self._database.transaction(_sweep)
        active = await self._database.read(runs.active)
        ours = [run for run in active if self._sources is None or run.source in self._sources]
        open_runs = [run.id for run in ours if run.status in OPEN_RUNS]
        return await self._gate.rebuild(self._unfinished(open_runs))

    def _to_gate(self, jobs: Sequence[StoredJob]) -> list[Job]:
        return to_gate_jobs(jobs, now=self._database.clock.now(), excluded=self._excluded)

    async def _unfinished(self, run_ids: list[int]) -> AsyncIterator[list[Job]]:
        after = 0
        while run_ids:
            # Each page is a transaction of its own, so none stays open while the gate is called.
            jobs = await self._database.read(job_store.unfinished, run_ids, after, _MOST_PER_CALL)
            yield self._to_gate(jobs)
            if len(jobs) < _MOST_PER_CALL:
                return
            after = jobs[-1].id


def _sweep(tx: Transaction) -> None:
    """Delete expired parked answers and allowance records, and release jobs that wait for runs that are over."""
    parked_answer_store.sweep(tx)
    allowance_records.sweep(tx)
    claims.release_all(tx)


class RecoveryService:
    """A service of the leader: recovers when it begins, and whenever a process died.

    A server that lost its data has lost the leader's lease too, so a new leader is elected and starts this service.
    """

    def __init__(self, recovery: Recovery, register_credentials: Callable[[], Awaitable[None]]) -> None:
        self._recovery, self._register_credentials = recovery, register_credentials
        self._needed = asyncio.Event()

    def notify(self) -> None:
        """Request a recovery: something may have been lost."""
        self._needed.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Recover now and at each request, until `stopping` is set."""
        self._needed.set()
        while not stopping.is_set():
            await unless(stopping, self._needed.wait())
            if self._needed.is_set():
                # Cleared before the work: a request that arrives meanwhile causes another recovery.
                self._needed.clear()
                # In this order: limits must be known before a credential can get a permit.
                await self._recovery.remind_gate()
                await self._register_credentials()
                await self._recovery.offer_everything()


class PermitSettler:
    """Settles committed batches, a few at once. `on_settled` gets the results of each batch that is settled."""

    def __init__(
        self,
        gate: Gate,
        recovery: Recovery,
        clock: Clock,
        on_settled: Callable[[Sequence[JobResult]], None],
        *,
        excluded: ExcludedCredentials = exclude_none,
    ) -> None:
        self._gate, self._recovery, self._clock, self._on_settled = gate, recovery, clock, on_settled
        self._excluded = excluded
        self._room = asyncio.Semaphore(_MOST_SETTLING)
        self._running: set[asyncio.Task[None]] = set()
        self._outage = Outage("collect.settle")

    async def begin(
        self, finished: Sequence[JobResult], late: Sequence[JobResult], offers: Sequence[StoredJob]
    ) -> None:
        """Settle a committed batch in the background, as soon as there is room.

        `offers` are the jobs to enqueue. What `late` results were to enqueue is enqueued: it may be missing.
        """
        await self._room.acquire()
        task = asyncio.create_task(self._run(finished, late, offers), name="settle")
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel batches that are being settled."""
        await end(*self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.release()

    async def _run(self, finished: Sequence[JobResult], late: Sequence[JobResult], offers: Sequence[StoredJob]) -> None:
        every = [*finished, *late]

        async def settle() -> None:
            await self._settle(every, late, offers)
            await self._offer_again([*(one for one in finished if one.state is JobState.FAILED), *late])

        # All steps are idempotent, so an outage in any of them repeats all.
        await self._outage.retry(settle)
        # Only now may the consumer forget the messages: it holds what is not acknowledged.
        self._on_settled(every)

    async def _settle(self, every: Sequence[JobResult], late: Sequence[JobResult], offers: Sequence[StoredJob]) -> None:
        """Enqueue before the acknowledgement: after it, recovery of a dead worker would not find these jobs."""
        if late:
            await self._recovery.offer_affected_runs([one.claim.job.id for one in late])
        # The last part is enqueued by the call that settles the permits; parts before it need calls of their own.
        last = max(0, len(offers) - _MOST_PER_CALL)
        for start in range(0, last, _MOST_PER_CALL):
            part = offers[start : min(start + _MOST_PER_CALL, last)]
            await self._gate.enqueue(to_gate_jobs(part, now=self._clock.now(), excluded=self._excluded))
        follow_ups = to_gate_jobs(offers[last:], now=self._clock.now(), excluded=self._excluded)
        await self._gate.settle([one.settlement for one in every], follow_ups=follow_ups)

    async def _offer_again(self, ended: Sequence[JobResult]) -> None:
        """Enqueue jobs that were retried before their settlement: until then the gate knew them, and ignored it."""
        if ended:
            await self._recovery.offer_jobs([one.claim.job.id for one in ended])
