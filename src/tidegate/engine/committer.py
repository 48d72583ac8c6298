"""Group commit: writes results and claims in batches, one transaction at a time. The middle of the job pipeline.

    gate       a waiting job gets a permit and enters the stream          primitives/gate
    worker     reads the stream, has jobs claimed, runs their calls       worker.py, calls.py
    committer  collects claims and results; stages documents;             committer.py, staging.py
               one transaction per batch                                  commit_batch.py, job_store.py, run_counters.py
    settling   enqueues follow-ups and settles permits after the commit   gate_sync.py

Results that finish while a transaction runs go into the next batch; a single result is committed at once. A batch that
is not full starts at least 10 ms after the previous one, because a small batch costs nearly as much as a large one.
Servers write claims and results in transactions of their own, at the same time; SQLite has one writer, and writes both
in one transaction.

A crash between                 leaves                                and is repaired by
    the permit and the claim        a message in the stream           any worker, which reads it
    the claim and the commit        RUNNING jobs, unacknowledged      the next worker: it claims and does them again
    the commit and the settlement   messages of jobs that ended       the next worker: its claim fails, so it enqueues
                                                                      the unfinished jobs of the run and acknowledges

A commit with unknown outcome is repeated like any other failure. If it had succeeded, its results are rejected as late
by their fencing tokens, and their follow-ups are enqueued as for any late result. A database that refuses (read-only
after a failover, wrong password) is treated like one that is unavailable.

A batch that fails for another reason is split: each result is written alone. A result that still fails ends without its
documents and effects, then without its source's writer. If even that end is rejected, it alone is retried with growing
pauses (`UnwrittenResults`), because its call must not be repeated.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from time import monotonic, time_ns

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.errors import CommitUnknown, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import tracing
from tidegate.engine.commit_batch import CommitBatch, CommitOutcome, CommitPolicy, WriteGroup, take, write_batch
from tidegate.engine.gate_sync import ExcludedCredentials, PermitSettler, Recovery, exclude_none
from tidegate.engine.job_log import log_jobs
from tidegate.engine.job_results import PAUSES, to_rejected, without_calls
from tidegate.engine.job_store import Claim, ClaimsLost, JobResult
from tidegate.engine.metrics import COLLECT_RESULTS_REFUSED
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.staging import Staging
from tidegate.primitives.gate import Admitted, Gate
from tidegate.primitives.stream import MessageSource
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, occurs
from tidegate.storage.documents import Documents
from tidegate.storage.sql import Database

log = get_logger(__name__)

Moved = Callable[[Collection[int]], object]
"""Called after the commit with the ids of runs that changed; must not block."""

_PACE_S = 0.01
"""Minimum time between the starts of two batches, unless the next one has `_PLENTY` items."""
_PLENTY = 100
# Bounds of the results in memory. A worker that is faster than the database waits there (`Committer.finish`).
_MOST_HELD = 2000
_MOST_BYTES = 64 * 1024 * 1024
_RETRIES = Backoff(first=timedelta(seconds=1), most=timedelta(minutes=1), jitter=0.2)
_MOST_UNWRITTEN = 200
_NOT_RECORDED: Mapping[int, Admitted] = {}


class _Claiming(msgspec.Struct, frozen=True):
    job_ids: list[int]
    admitted: Mapping[int, Admitted]
    answer: asyncio.Future[dict[int, Claim]]


class _AnswerToPark(msgspec.Struct, frozen=True):
    claim: Claim
    parked: ParkedAnswer
    done: asyncio.Future[bool]


class _BatchPace:
    """When the next batch starts: once there is work, but not within 10 ms of the previous one unless it is large.

    A batch of one job costs nearly as much as one of fifty.
    """

    def __init__(self, waiting: Callable[[], int]) -> None:
        """`waiting` returns how many items wait for the next batch."""
        self._waiting = waiting
        self._work, self._plenty = asyncio.Event(), asyncio.Event()
        self._next_s, self._is_stopping = 0.0, False

    def wake(self) -> None:
        """Start a batch: there is work."""
        self._work.set()
        self.note()

    def note(self) -> None:
        """Start the batch early if `_PLENTY` items wait for it."""
        if self._waiting() >= _PLENTY:
            self._plenty.set()

    def stop(self) -> None:
        """Start all further batches without delay."""
        self._is_stopping = True
        self._work.set()
        self._plenty.set()

    async def next_batch(self) -> None:
        """Wait until the next batch is to start."""
        await self._work.wait()
        if not self._is_stopping:
            now_s = asyncio.get_running_loop().time()
            if now_s < self._next_s and self._waiting() < _PLENTY:
                # An earlier batch may have left it set.
                self._plenty.clear()
                await occurs(self._plenty, within_s=self._next_s - now_s)
            # Measured between starts: after a transaction that took longer, the next batch starts at once.
            self._next_s = asyncio.get_running_loop().time() + _PACE_S
        # Cleared before the caller takes the items, without an await in between: what arrives later sets it again.
        self._work.clear()


class Committer:
    """Service of each worker process that writes claims and results in batches."""

    def __init__(
        self,
        database: Database,
        gate: Gate,
        documents: Documents,
        consumer: MessageSource,
        recovery: Recovery,
        *,
        policy: CommitPolicy,
        pauses: Backoff = PAUSES,
        on_moved: Moved = lambda _: None,
        excluded: ExcludedCredentials = exclude_none,
    ) -> None:
        self._database, self._consumer, self._on_moved = database, consumer, on_moved
        self._policy, self._pauses = policy, pauses
        self._outage = Outage("collect.commit")
        self._unwritten = UnwrittenResults(self._hold)
        self._staging = Staging(documents, database.clock, self._ready)
        self._settling = PermitSettler(gate, recovery, database.clock, self._release_settled, excluded=excluded)
        self._claimings: list[_Claiming] = []
        self._to_park: list[_AnswerToPark] = []
        self._groups: deque[WriteGroup] = deque()
        self._plain: deque[JobResult] = deque()
        self._held: dict[str, int] = {}
        """The size in bytes of each result that is not settled, by its message."""
        self._held_bytes = 0
        self._room, self._empty = asyncio.Event(), asyncio.Event()
        self._results_pace = _BatchPace(self._results_waiting)
        self._claims_pace = self._results_pace if database.dialect == "sqlite" else _BatchPace(self._claims_waiting)
        """SQLite has one writer: there, claims are written with results. Servers write both at the same time."""
        self._room.set()
        self._empty.set()

    async def claim(self, job_ids: list[int], admitted: Mapping[int, Admitted] = _NOT_RECORDED) -> dict[int, Claim]:
        """Claim jobs in the next transaction. `admitted` has their credentials, for sources that record claims."""
        answer: asyncio.Future[dict[int, Claim]] = asyncio.get_running_loop().create_future()
        self._claimings.append(_Claiming(job_ids, admitted, answer))
        self._claims_pace.wake()
        return await answer

    async def keep(self, claim: Claim, parked: ParkedAnswer) -> bool:
        """Store an answer in the next transaction, before it is read. Returns False if the database rejects it."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._to_park.append(_AnswerToPark(claim, parked, done))
        self._results_pace.wake()
        return await done

    async def finish(self, finished: JobResult) -> None:
        """Write a result in one of the next transactions. Blocks while too many results wait to be written."""
        # Several callers wake for the same room, so each of them checks again.
        while not self._room.is_set():
            await self._room.wait()
        self._hold(finished)

    def _hold(self, finished: JobResult) -> None:
        needs_store, size = finished.needs_store, finished.size
        # It counts until it is settled and not only until the commit, because its answer stays in memory that long.
        self._held[finished.settlement.message] = size
        self._held_bytes += size
        self._empty.clear()
        if not self._has_room:
            self._room.clear()
        if needs_store:
            # Its group wakes the committer when it is staged (`_ready`).
            self._staging.add(finished)
            self._results_pace.note()
        else:
            self._plain.append(finished)
            self._results_pace.wake()

    async def settled(self) -> None:
        """Wait until everything that was finished is written and settled."""
        await self._empty.wait()

    async def run(self, stopping: asyncio.Event) -> None:
        """Commit until `stopping` is set and everything is written."""
        # Both loops may be waiting for work that will not come any more.
        waking = asyncio.create_task(stopping.wait(), name="wake the committer to stop")
        waking.add_done_callback(lambda _: (self._results_pace.stop(), self._claims_pace.stop()))
        claiming = asyncio.create_task(self._commit_claims(stopping), name="commit claims")
        try:
            # Everything that a caller waits for is written before the end.
            while not stopping.is_set() or self._held or self._to_park or (self._claimings and self._writes_claims_too):
                await self._results_pace.next_batch()
                claimings = self._take_claims() if self._writes_claims_too else []
                to_park, self._to_park = self._to_park, []
                await self._commit(claimings, to_park, self._take())
            await claiming
        finally:
            waking.cancel()
            await end(claiming)
            self._unwritten.close()
            await self._staging.close()
            await self._settling.close()

    async def _commit_claims(self, stopping: asyncio.Event) -> None:
        """Commit claims in separate transactions, if the database supports several writers."""
        while not self._writes_claims_too and (not stopping.is_set() or self._held or self._claimings):
            await self._claims_pace.next_batch()
            await self._commit(self._take_claims(), [], [])

    @property
    def _writes_claims_too(self) -> bool:
        return self._claims_pace is self._results_pace

    def _take_claims(self) -> list[_Claiming]:
        claimings, self._claimings = self._claimings, []
        return claimings

    def _results_waiting(self) -> int:
        results = len(self._plain) + self._staging.waiting + sum(len(group.finished) for group in self._groups)
        claims = self._claims_waiting() if self._writes_claims_too else 0
        return results + len(self._to_park) + claims

    def _claims_waiting(self) -> int:
        return sum(len(claiming.job_ids) for claiming in self._claimings)

    @property
    def _has_room(self) -> bool:
        return len(self._held) < _MOST_HELD and self._held_bytes < _MOST_BYTES

    def _ready(self, group: WriteGroup) -> None:
        self._groups.append(group)
        self._results_pace.wake()

    def _take(self) -> list[WriteGroup]:
        """Remove and return the results of the next batch."""
        groups = list[WriteGroup]()
        if self._groups:
            groups.append(self._groups.popleft())
            # The next group is staged while this one is written.
            self._staging.go_on()
        plain = take(self._plain)
        # What is left over may have no later arrival that would start its batch.
        if self._groups or self._plain:
            self._results_pace.wake()
        return [*groups, WriteGroup(plain)] if plain else groups

    async def _commit(
        self, claimings: Sequence[_Claiming], to_park: Sequence[_AnswerToPark], groups: Sequence[WriteGroup]
    ) -> None:
        """Write one batch. A result that cannot be written does not block the others."""
        this = self._batch_of(claimings, groups)
        if to_park:
            this = msgspec.structs.replace(this, kept=[(each.claim, each.parked) for each in to_park])
        if not this.wanted and not groups and not to_park:
            return
        try:
            await self._write(this, claimings)
            _resolve_parked(to_park, is_kept=True)
        except Exception as error:
            log.exception("collect.round_failed", jobs=len(this.finished), claims=len(this.wanted))
            # The caller then reads the answer without a stored copy.
            _resolve_parked(to_park, is_kept=False)
            # Claims first: callers wait for them.
            await self._claim_alone(claimings, error, has_company=bool(groups or to_park))
            for one in this.finished:
                await self._write_alone(one)

    def _batch_of(self, claimings: Sequence[_Claiming], groups: Sequence[WriteGroup]) -> CommitBatch:
        wanted = [job_id for claiming in claimings for job_id in claiming.job_ids]
        if not self._policy.records_claims:
            return CommitBatch(wanted=wanted, groups=groups)
        callers = {job_id: one.credential for claiming in claimings for job_id, one in claiming.admitted.items()}
        return CommitBatch(wanted=wanted, groups=groups, callers=callers)

    async def _claim_alone(self, claimings: Sequence[_Claiming], error: Exception, *, has_company: bool) -> None:
        """Repeat the claims without the results, which may be the cause; report a second error to the callers."""
        # If the error came after the commit, the claims were answered before.
        left = [claiming for claiming in claimings if not claiming.answer.done()]
        this = self._batch_of(left, [])
        # A batch with nothing but claims failed because of them: to repeat it would fail again.
        if this.wanted and has_company:
            try:
                await self._write(this, left)
            except Exception as own:
                log.exception("collect.round_failed", jobs=0, claims=len(this.wanted))
                error = own
        for claiming in left:
            if not claiming.answer.done():
                claiming.answer.set_exception(error)

    async def _write_alone(self, one: JobResult) -> None:
        """Write a result in a batch of its own; then without its documents and effects; then without its writer."""
        try:
            await self._write(CommitBatch(groups=[await self._staging.stage([one])]), [])
            return
        except Exception as error:
            log.exception("collect.result_refused", job=one.claim.job.id)
            COLLECT_RESULTS_REFUSED.labels("refused").inc()
            refused = to_rejected(one, error, self._database.clock.now(), pauses=self._pauses)
        # `last` becomes the smallest form that was tried. A result without its writer was reduced before; it comes from
        # `UnwrittenResults` and has no smaller form.
        last = one
        for last in (refused, msgspec.structs.replace(refused, has_writer=False)) if one.has_writer else ():
            try:
                await self._write(CommitBatch(groups=[WriteGroup([last])]), [])
                return
            except Exception:
                log.exception("collect.end_refused", job=one.claim.job.id)
        self._postpone(last)

    def _postpone(self, one: JobResult) -> None:
        """Retry its end later. If too many wait for that, its message is left to be taken over by another worker."""
        COLLECT_RESULTS_REFUSED.labels("unwritten").inc()
        if self._unwritten.keep(one):
            # Not counted as held, so that the committer can stop. The message stays unacknowledged.
            self._forget([one.settlement.message])
        else:
            log.error("collect.result_lost", job=one.claim.job.id)
            # Forgotten without an acknowledgement: the sweep of idle messages redelivers it.
            self._release_settled([one])

    async def _write(self, this: CommitBatch, claimings: Sequence[_Claiming]) -> None:
        """Write a batch, however long it takes; then return its claims, and begin to settle its results."""
        began_ns = time_ns()
        this, written = await self._write_repeatedly(this)
        left = dict(written.claimed)
        # A job that occurs twice was enqueued again in the meantime: only its last message has a valid permit.
        for claiming in reversed(claimings):
            ours = {i: left.pop(i) for i in claiming.job_ids if i in left}
            # A cancelled caller leaves its jobs RUNNING. Their messages are redelivered, and the jobs are claimed
            # again.
            if not claiming.answer.cancelled():
                claiming.answer.set_result(ours)
        finished = this.finished
        if not finished and not this.late:
            return
        # Reported only now: until here the batch may have been rolled back and repeated.
        tracing.end_jobs(finished, this.late, began_ns)
        log_jobs(finished)
        self._unwritten.written(finished, this.late)
        self._on_moved({one.claim.job.run_id for one in (*finished, *this.late)})
        # Waits while too many batches are being settled, so that commits do not get ahead of the gate.
        await self._settling.begin(finished, this.late, written.offers)

    async def _write_repeatedly(self, this: CommitBatch) -> tuple[CommitBatch, CommitOutcome]:
        """Write a batch. Return it without the results that were overtaken, and the outcome."""
        tries, is_unsure = 0, False
        while True:
            began = monotonic()
            try:
                written = await self._database.transaction(write_batch, this, self._policy)
                self._outage.over()
                if not written.overtaken:
                    return this, written
                # Nothing was written. Repeat the batch with the overtaken results as late ones.
                this = await self._without(this, written.overtaken, counts=not is_unsure)
            except ClaimsLost:
                # The transaction was rolled back. Next time, find the overtaken results before anything is written.
                this = msgspec.structs.replace(this, finds_overtaken=True)
            except Unavailable as error:
                tries += 1
                # If that commit succeeded, the repetition finds the results of this batch overtaken by themselves, with
                # their calls already counted.
                is_unsure = is_unsure or isinstance(error, CommitUnknown)
                await self._outage.pause(error, tries, began=began)

    async def _without(self, this: CommitBatch, overtaken: Collection[JobResult], *, counts: bool) -> CommitBatch:
        """Return the batch with overtaken results as late ones; unless `counts`, their calls may be counted already."""
        # By identity: results are compared by value, and of two equal ones of a job only the second is overtaken.
        late = {id(one) for one in overtaken}
        groups: list[WriteGroup] = []
        for group in this.groups:
            left = [one for one in group.finished if id(one) not in late]
            # Staged documents cannot be separated by result, so a group that lost one is staged again.
            is_whole = len(left) == len(group.finished) or group.staged is None
            groups.append(WriteGroup(left, group.staged) if is_whole else await self._staging.stage(left))
        late_now = [one if counts else without_calls(one) for one in overtaken]
        groups = [group for group in groups if group.finished]
        return msgspec.structs.replace(this, groups=groups, late=[*this.late, *late_now])

    def _release_settled(self, finished: Sequence[JobResult]) -> None:
        """Release settled results: the consumer may forget their messages."""
        messages = [one.settlement.message for one in finished]
        self._consumer.settled(messages)
        self._forget(messages)

    def _forget(self, messages: Sequence[str]) -> None:
        self._held_bytes -= sum(self._held.pop(message) for message in messages)
        if self._has_room:
            self._room.set()
        # The loops in `run` end when nothing is held. They have to wake up to notice it.
        if not self._held:
            self._empty.set()
            self._results_pace.wake()
            self._claims_pace.wake()


def _resolve_parked(to_park: Sequence[_AnswerToPark], *, is_kept: bool) -> None:
    for answer in to_park:
        if not answer.done.done():
            answer.done.set_result(is_kept)


class UnwrittenResults:
    """Results that the database rejects, although it accepts others. Each is passed to `on_due` for its retry.

    The retries of a result end when it is written, or when its job was claimed by another worker.
    """

    def __init__(self, on_due: Callable[[JobResult], None]) -> None:
        self._on_due = on_due
        self._tries: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def keep(self, one: JobResult) -> bool:
        """Retry this result later. Returns False where too many wait already."""
        message = one.settlement.message
        if len(self._timers) >= _MOST_UNWRITTEN:
            self._tries.pop(message, None)
            return False
        tries = self._tries[message] = self._tries.get(message, 0) + 1
        pause_s = _RETRIES.delay(tries).total_seconds()
        self._timers[message] = asyncio.get_running_loop().call_later(pause_s, self._due, one)
        return True

    def written(self, *results: Sequence[JobResult]) -> None:
        """Forget the retries of results that were written or overtaken."""
        if self._tries:
            for one in chain.from_iterable(results):
                self._tries.pop(one.settlement.message, None)

    def close(self) -> None:
        """Cancel all retries; the jobs are left to other workers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._tries.clear()

    def _due(self, one: JobResult) -> None:
        del self._timers[one.settlement.message]
        self._on_due(one)
