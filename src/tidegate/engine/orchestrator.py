"""Starts, cancels and retries runs. Commands, HTTP routes, schedules and triggers all use this class."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from enum import StrEnum

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, NotFound, Unavailable
from tidegate.core.telemetry import traces
from tidegate.engine import claims, completion, parked_answer_store, runs
from tidegate.engine.committer import Moved
from tidegate.engine.gate_sync import ExcludedCredentials, exclude_none, to_gate_jobs
from tidegate.engine.job_store import StoredJob
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.runs import Run, RunActive, RunCanceled
from tidegate.engine.schedules.firings import ScheduleInactive
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source, Subject
from tidegate.engine.source_addresses import SourceAddressConflict
from tidegate.primitives.gate import Gate
from tidegate.storage.sql import Database, Transaction


class Trigger(StrEnum):
    """What started a run."""

    SIGNUP = "signup"
    SCHEDULED = "scheduled"
    MANUAL = "manual"


class Orchestrator:
    """Commits rows first, and enqueues them in the gate afterwards.

    An enqueue intent is recorded before the commit. If the process dies between the two steps, the intent expires
    unconfirmed, and the leader enqueues everything unfinished.
    """

    def __init__(
        self,
        database: Database,
        gate: Gate,
        sources: Mapping[str, Source],
        after_offer: Callable[[str], Awaitable[None]] | None = None,
        *,
        on_moved: Moved = lambda _: None,
        settings: CollectSettings | None = None,
        excluded: ExcludedCredentials = exclude_none,
    ) -> None:
        self._excluded = excluded
        self._database, self._gate, self._sources, self._on_moved = database, gate, sources, on_moved
        self._settings = settings or CollectSettings()
        self._after_offer = after_offer or _nothing
        """Called with each pool that got jobs, to check that it has credentials."""

    async def begin(self, source: str, subject: Subject, *, pool: str, trigger: Trigger = Trigger.MANUAL) -> int:
        """Start a run and return its id. Raises `RunActive` if the user has an active one.

        Raises `SourceAddressConflict` if the stored data comes from another address than that of this process.
        """
        require_name("pool", pool)
        require_name("user_id", subject.user_id)
        if source not in self._sources:
            raise InvalidArgument("source", source, f"must be one of {', '.join(sorted(self._sources))}")
        facts = {"tidegate.source": source, "tidegate.user": subject.user_id, "tidegate.pool": pool}
        with traces.span("begin run", {**facts, "tidegate.trigger": trigger.value}, kind="producer") as span:
            beginning = runs.NewRun.of(
                self._sources[source],
                subject,
                pool,
                trigger,
                self._settings,
                traceparent=None if span is None else span.traceparent,
            )
            run_id, jobs = await self._begin(beginning)
            if span is not None:
                span.note({"tidegate.run": run_id, "tidegate.jobs": len(jobs)})
        return run_id

    async def _begin(self, beginning: runs.NewRun) -> tuple[int, list[StoredJob]]:
        if not beginning.specs:
            raise InvalidArgument("subject", beginning.subject.login, "the source has no jobs for it")
        async with self.enqueue_intent():
            run_id, jobs = await self._database.transaction(runs.begin, beginning)
            await self.offer(jobs)
        return run_id, jobs

    async def cancel(self, run_id: int) -> bool:
        """Cancel a run at once; results of its running calls are rejected. Returns False if it had already ended."""
        async with self.enqueue_intent():
            canceled = await self._database.transaction(runs.cancel, run_id)
            if canceled is None:
                return False
            self._on_moved([run_id])
            # After the commit: before it, a recovery would enqueue the jobs again.
            await self._gate.forget([str(job_id) for job_id in canceled])
            released = await self._database.transaction(claims.release_late, [run_id])
            if released:
                await self.offer(released)
        return True

    async def retry(self, run_id: int) -> int:
        """Retry the failed jobs of a run, and its failed completion; return the number of jobs.

        Raises `RunActive` if the user has another active run, and `RunCanceled` if this one was canceled.
        """
        async with self.enqueue_intent():
            jobs = await self._database.transaction(_retry, run_id)
            await self.offer(jobs)
        return len(jobs)

    async def retry_job(self, job_id: int) -> bool:
        """Retry one failed job. Returns False if it has not failed. Raises `NotFound`, and the errors of `retry`."""
        async with self.enqueue_intent():
            jobs = await self._database.transaction(runs.retry_job, job_id)
            await self.offer(jobs)
        return bool(jobs)

    async def read_again(self, job_id: int, parked: ParkedAnswer) -> bool:
        """Retry one failed job with a stored answer, without a call. Otherwise as `retry_job`."""
        async with self.enqueue_intent():
            jobs = await self._database.transaction(_read_again, job_id, parked)
            await self.offer(jobs)
        return bool(jobs)

    async def show(self, run_id: int) -> Run:
        """Return a run. Raises `NotFound`."""
        return await self._database.read(runs.get, run_id)

    async def offer(self, jobs: Sequence[StoredJob]) -> None:
        """Enqueue committed jobs in the gate and report that their runs changed."""
        self._on_moved({job.run_id for job in jobs})
        await self._gate.enqueue(to_gate_jobs(jobs, now=self._database.clock.now(), excluded=self._excluded))
        for pool in sorted({job.pool for job in jobs}):
            await self._after_offer(pool)

    @asynccontextmanager
    async def enqueue_intent(self) -> AsyncGenerator[None]:
        """Record an enqueue intent around a commit and its `offer`. It stays unless both are known to have ended."""
        intent = await self._gate.intents.record()
        try:
            yield
        except (RunActive, RunCanceled, SourceAddressConflict, NotFound, ScheduleInactive):
            # These errors roll the transaction back, so nothing is left to enqueue. After any other error the outcome
            # is open, and the intent expires.
            await self._keep(intent)
            raise
        await self._keep(intent)

    async def _keep(self, intent: str) -> None:
        with suppress(Unavailable):  # the intent expires, and recovery finds nothing to do
            await self._gate.intents.confirm(intent)


def _retry(tx: Transaction, run_id: int) -> list[StoredJob]:
    jobs = runs.retry_failed(tx, run_id)
    completion.replay(tx, run_id)
    return jobs


def _read_again(tx: Transaction, job_id: int, parked: ParkedAnswer) -> list[StoredJob]:
    jobs = runs.retry_job(tx, job_id)
    if jobs:
        parked_answer_store.park(tx, job_id, parked)
    return jobs


async def _nothing(_pool: str) -> None:
    """Ignore the pool."""
