"""Group commit: what is finished while a transaction runs goes into the next one. One job alone commits at once.

One transaction per round: claims of new jobs, answers that are stored before they are read, and everything that became
of claimed jobs: documents, endings, follow-ups, cursors, counters, ends of runs. Only after its commit are permits
settled and follow-ups offered. A crash

- before the commit leaves the jobs RUNNING: their messages are taken over, claimed again, and done again;
- between commit and settle leaves messages of jobs that have ended: whoever takes one over finds that, and offers what
  is unfinished of its run, which brings the follow-ups to the gate.

A commit of unknown fate is tried again like any other failure. If it did happen, the results are late by their own
doing, and what they led to is offered in the same way. A database that refuses (read-only after a failover, another
password) is waited for like one that is away: it says nothing about what is to be written.

A round that fails for a reason of its own is written result by result. The bad one ends without what it brought, then
without its source's writer; and where not even its end is taken, that alone is tried again and again (`stubborn.py`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic, time_ns

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.errors import CommitUnknown, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import COLLECT_RESULTS_REFUSED
from tidegate.engine import tracing
from tidegate.engine.commit_batch import CommitBatch, CommitOutcome, Group, take, write_batch
from tidegate.engine.commit_policy import CommitPolicy
from tidegate.engine.gate_jobs import Barred, none_barred
from tidegate.engine.job_log import log_jobs
from tidegate.engine.job_results import PAUSES, JobResult, to_refused, without_calls
from tidegate.engine.job_store import Claim
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.recovery import Recovery
from tidegate.engine.settling import Settling
from tidegate.engine.staging import Staging
from tidegate.engine.unwritable_results import Stubborn
from tidegate.primitives.gate import Admitted, Gate
from tidegate.primitives.stream import Intake
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import occurs
from tidegate.storage.documents import Documents
from tidegate.storage.sql import Database

log = get_logger(__name__)

Moved = Callable[[Collection[int]], object]
"""Called with the numbers of runs that moved, after the commit; must not wait."""

_PACE_S = 0.01
"""Between the beginnings of two rounds, unless the next one has plenty to do."""
_PLENTY = 100
_MOST_HELD = 2000
_MOST_BYTES = 64 * 1024 * 1024
_NOBODY: Mapping[int, Admitted] = {}


class _Claiming(msgspec.Struct, frozen=True):
    job_ids: list[int]
    admitted: Mapping[int, Admitted]
    answer: asyncio.Future[dict[int, Claim]]


class _Keeping(msgspec.Struct, frozen=True):
    claim: Claim
    parked: ParkedAnswer
    done: asyncio.Future[bool]


class Committer:
    """A service of every worker process."""

    def __init__(
        self,
        database: Database,
        gate: Gate,
        documents: Documents,
        consumer: Intake,
        recovery: Recovery,
        *,
        terms: CommitPolicy,
        pauses: Backoff = PAUSES,
        on_moved: Moved = lambda _: None,
        barred: Barred = none_barred,
    ) -> None:
        self._database, self._consumer, self._on_moved = database, consumer, on_moved
        self._terms, self._pauses = terms, pauses
        self._outage = Outage("collect.commit")
        self._stubborn = Stubborn(self._hold)
        self._staging = Staging(documents, database.clock, self._ready)
        self._settling = Settling(gate, recovery, database.clock, self._let_go, barred=barred)
        self._claimings: list[_Claiming] = []
        self._keepings: list[_Keeping] = []
        self._groups: deque[Group] = deque()
        self._plain: deque[JobResult] = deque()
        self._held: dict[str, int] = {}
        """The messages of results that are not settled, with what they hold in bytes."""
        self._held_bytes = 0
        self._work, self._room, self._empty = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._plenty, self._next_round = asyncio.Event(), 0.0
        self._room.set()
        self._empty.set()

    async def claim(self, job_ids: list[int], admitted: Mapping[int, Admitted] = _NOBODY) -> dict[int, Claim]:
        """Claim jobs in the next transaction; `admitted` tells who is to make their calls."""
        answer: asyncio.Future[dict[int, Claim]] = asyncio.get_running_loop().create_future()
        self._claimings.append(_Claiming(job_ids, admitted, answer))
        self._work.set()
        self._note_plenty()
        return await answer

    async def keep(self, claim: Claim, parked: ParkedAnswer) -> bool:
        """Store an answer in the next transaction, before it is read. False where the database does not take it."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._keepings.append(_Keeping(claim, parked, done))
        self._work.set()
        self._note_plenty()
        return await done

    async def finish(self, finished: JobResult) -> None:
        """Have the end of a job written; waits while too much is waiting already, as when the database is away."""
        while not self._room.is_set():
            await self._room.wait()
        self._hold(finished)

    def _hold(self, finished: JobResult) -> None:
        needs_store, size = finished.needs_store, finished.size
        self._held[finished.settlement.message] = size
        self._held_bytes += size
        self._empty.clear()
        if not self._has_room:
            self._room.clear()
        if needs_store:
            self._staging.add(finished)
        else:
            self._plain.append(finished)
            self._work.set()
        self._note_plenty()

    async def settled(self) -> None:
        """Wait until everything that was finished is written and settled."""
        await self._empty.wait()

    async def run(self, stopping: asyncio.Event) -> None:
        """Commit until told to stop and nothing is left."""
        waking = asyncio.create_task(stopping.wait(), name="wake the committer to stop")
        waking.add_done_callback(lambda _: (self._work.set(), self._plenty.set()))
        try:
            while not stopping.is_set() or self._held or self._claimings or self._keepings:
                await self._work.wait()
                if not stopping.is_set():
                    await self._keep_pace()
                self._work.clear()
                claimings, self._claimings = self._claimings, []
                keepings, self._keepings = self._keepings, []
                await self._commit(claimings, keepings, self._take())
        finally:
            waking.cancel()
            self._stubborn.close()
            await self._staging.close()
            await self._settling.close()

    async def _keep_pace(self) -> None:
        """A round costs much the same for one job as for fifty. So those that are not full come at a distance."""
        now = asyncio.get_running_loop().time()
        if not self._is_plenty and now < self._next_round:
            self._plenty.clear()
            await occurs(self._plenty, within_s=self._next_round - now)
        self._next_round = asyncio.get_running_loop().time() + _PACE_S

    @property
    def _is_plenty(self) -> bool:
        results = len(self._plain) + self._staging.waiting + sum(len(group.finished) for group in self._groups)
        results += len(self._keepings)
        return results + sum(len(claiming.job_ids) for claiming in self._claimings) >= _PLENTY

    def _note_plenty(self) -> None:
        if self._is_plenty:
            self._plenty.set()

    @property
    def _has_room(self) -> bool:
        return len(self._held) < _MOST_HELD and self._held_bytes < _MOST_BYTES

    def _ready(self, group: Group) -> None:
        self._groups.append(group)
        self._work.set()
        self._note_plenty()

    def _take(self) -> list[Group]:
        """What goes into the next round; the rest waits for the one after."""
        groups = list[Group]()
        if self._groups:
            groups.append(self._groups.popleft())
            self._staging.go_on()
        plain = take(self._plain)
        if self._groups or self._plain:
            self._work.set()
        return [*groups, Group(plain)] if plain else groups

    async def _commit(
        self, claimings: Sequence[_Claiming], keepings: Sequence[_Keeping], groups: Sequence[Group]
    ) -> None:
        """One round. What cannot be written, for a reason of its own, does not keep the others from being."""
        this = self._round(claimings, groups)
        if keepings:
            this = msgspec.structs.replace(this, kept=[(each.claim, each.parked) for each in keepings])
        if not this.wanted and not groups and not keepings:
            return
        try:
            await self._write(this, claimings)
            _tell_kept(keepings, is_kept=True)
        except Exception as error:
            log.exception("collect.round_failed", jobs=len(this.finished), claims=len(this.wanted))
            _tell_kept(keepings, is_kept=False)
            await self._claim_alone(claimings, error, has_company=bool(groups or keepings))
            for one in this.finished:
                await self._write_alone(one)

    def _round(self, claimings: Sequence[_Claiming], groups: Sequence[Group]) -> CommitBatch:
        wanted = [job_id for claiming in claimings for job_id in claiming.job_ids]
        if not self._terms.recorded:
            return CommitBatch(wanted=wanted, groups=groups)
        callers = {job_id: one.credential for claiming in claimings for job_id, one in claiming.admitted.items()}
        return CommitBatch(wanted=wanted, groups=groups, callers=callers)

    async def _claim_alone(self, claimings: Sequence[_Claiming], error: Exception, *, has_company: bool) -> None:
        """In a round of their own, if the fault may be another's. If not, or if that fails too, they are told of it."""
        left = [claiming for claiming in claimings if not claiming.answer.done()]
        this = self._round(left, [])
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
        """In a round of its own; if that fails, without what it brought, and at last without its source's writer."""
        try:
            await self._write(CommitBatch(groups=[await self._staging.stage([one])]), [])
            return
        except Exception as error:
            log.exception("collect.result_refused", job=one.ending.claim.job.id)
            COLLECT_RESULTS_REFUSED.labels("refused").inc()
            refused = to_refused(one, error, self._database.clock.now(), pauses=self._pauses)
        last = one
        for last in (refused, msgspec.structs.replace(refused, has_writer=False)) if one.has_writer else ():
            try:
                await self._write(CommitBatch(groups=[Group([last])]), [])
                return
            except Exception:
                log.exception("collect.end_refused", job=one.ending.claim.job.id)
        self._put_by(last)

    def _put_by(self, one: JobResult) -> None:
        """Its end is tried again later. Where too many wait for that, another worker gets its message in due time."""
        COLLECT_RESULTS_REFUSED.labels("unwritten").inc()
        if self._stubborn.keep(one):
            self._forget([one.settlement.message])
        else:
            log.error("collect.result_lost", job=one.ending.claim.job.id)
            self._let_go([one])

    async def _write(self, this: CommitBatch, claimings: Sequence[_Claiming]) -> None:
        """Write a round, however long it takes, and tell everybody."""
        began_ns = time_ns()
        this, written = await self._patiently(this)
        left = dict(written.claimed)
        # A job that came twice was offered again meanwhile: its last message has the permit, the others have nothing.
        for claiming in reversed(claimings):
            ours = {i: left.pop(i) for i in claiming.job_ids if i in left}
            if not claiming.answer.cancelled():
                claiming.answer.set_result(ours)
        finished = this.finished
        if not finished and not this.late:
            return
        tracing.end_jobs(finished, this.late, began_ns)
        log_jobs(finished)
        self._stubborn.written(finished, this.late)
        self._on_moved({one.ending.claim.job.run_id for one in (*finished, *this.late)})
        await self._settling.begin(finished, this.late, written.offers)

    async def _patiently(self, this: CommitBatch) -> tuple[CommitBatch, CommitOutcome]:
        """The round as it was written: without those results that are not ours any more."""
        tries, is_unsure = 0, False
        while True:
            began = monotonic()
            try:
                written = await self._database.transaction(write_batch, this, self._terms)
                self._outage.over()
                if not written.overtaken:
                    return this, written
                this = await self._without(this, written.overtaken, counts=not is_unsure)
            except Unavailable as error:
                tries += 1
                is_unsure = is_unsure or isinstance(error, CommitUnknown)
                await self._outage.pause(error, tries, began=began)

    async def _without(self, this: CommitBatch, overtaken: Collection[JobResult], *, counts: bool) -> CommitBatch:
        """The round without results that are not ours; `counts` is False where their calls may be counted already."""
        late = {id(one) for one in overtaken}
        groups: list[Group] = []
        for group in this.groups:
            left = [one for one in group.finished if id(one) not in late]
            is_whole = len(left) == len(group.finished) or group.staged is None
            groups.append(Group(left, group.staged) if is_whole else await self._staging.stage(left))
        told = [one if counts else without_calls(one) for one in overtaken]
        groups = [group for group in groups if group.finished]
        return msgspec.structs.replace(this, groups=groups, late=[*this.late, *told])

    def _let_go(self, finished: Sequence[JobResult]) -> None:
        """These need no more work of ours."""
        messages = [one.settlement.message for one in finished]
        self._consumer.settled(messages)
        self._forget(messages)

    def _forget(self, messages: Sequence[str]) -> None:
        self._held_bytes -= sum(self._held.pop(message) for message in messages)
        if self._has_room:
            self._room.set()
        if not self._held:
            self._empty.set()
            self._work.set()


def _tell_kept(keepings: Sequence[_Keeping], *, is_kept: bool) -> None:
    for keeping in keepings:
        if not keeping.done.done():
            keeping.done.set_result(is_kept)
