"""Group commit: what is finished while a transaction runs goes into the next one. One job alone commits at once.

One transaction per round: claims of new jobs, and everything that became of claimed ones: documents, endings,
follow-ups, cursors, counters, ends of runs. Only after its commit are permits settled and follow-ups offered. A crash

- before the commit leaves the jobs RUNNING: their messages are taken over, claimed again, and done again;
- between commit and settle leaves messages of jobs that have ended: whoever takes one over finds that, and offers what
  is unfinished of its run, which brings the follow-ups to the gate.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from tidegate.collect import ledger, runs
from tidegate.collect.ledger import Claim, StoredJob
from tidegate.collect.lifecycle import JobState
from tidegate.collect.offers import to_gate_jobs
from tidegate.collect.verdicts import Finished
from tidegate.database import Database, Transaction
from tidegate.documents import DocumentStore, Staged
from tidegate.flow.gate import Gate
from tidegate.kernel.backoff import Backoff
from tidegate.kernel.errors import Unavailable
from tidegate.runtime.waiting import unless
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

_RETRIES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5))
_MOST_AT_ONCE = 500


class _Claiming(msgspec.Struct, frozen=True):
    job_ids: list[int]
    answer: asyncio.Future[dict[int, Claim]]


class _Written(msgspec.Struct, frozen=True):
    claimed: dict[int, Claim]
    offers: list[StoredJob]
    late: int


class Committer:
    """A service of every worker process."""

    def __init__(
        self,
        database: Database,
        gate: Gate,
        documents: DocumentStore,
        *,
        planning_kinds: Mapping[str, frozenset[str]],
    ) -> None:
        self._database, self._gate, self._documents = database, gate, documents
        self._planning_kinds = planning_kinds
        self._claimings: list[_Claiming] = []
        self._finished: list[Finished] = []
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._settling: asyncio.Task[None] | None = None

    async def claim(self, job_ids: list[int]) -> dict[int, Claim]:
        """Claim jobs in the next transaction."""
        answer: asyncio.Future[dict[int, Claim]] = asyncio.get_running_loop().create_future()
        self._claimings.append(_Claiming(job_ids, answer))
        self._work.set()
        return await answer

    async def finish(self, finished: Finished) -> None:
        """Have the end of a job written; waits while too much is waiting already, as when the database is away."""
        await self._room.wait()
        self._finished.append(finished)
        if len(self._finished) >= 2 * _MOST_AT_ONCE:
            self._room.clear()
        self._work.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Commit until told to stop and nothing is left."""
        while not stopping.is_set() or self._finished or self._claimings:
            await unless(stopping, self._work.wait())
            self._work.clear()
            claimings, self._claimings = self._claimings, []
            batch, self._finished = self._finished[:_MOST_AT_ONCE], self._finished[_MOST_AT_ONCE:]
            if self._finished:
                self._work.set()
            self._room.set()
            if claimings or batch:
                await self._commit(claimings, batch)
        if self._settling is not None:
            await self._settling

    async def _commit(self, claimings: list[_Claiming], batch: list[Finished]) -> None:
        """One round; if it cannot be written, the same round is tried again until it can."""
        wanted = [job_id for claiming in claimings for job_id in claiming.job_ids]
        tries = 0
        while True:
            try:
                staged = await self._documents.stage(
                    [document for one in batch for document in one.documents],
                    completed=[listing for one in batch for listing in one.completed],
                )
                written = await self._database.transaction(write_round, wanted, batch, staged, self._planning_kinds)
                break
            except Unavailable as error:
                tries += 1
                log.warning("collect.commit_failed", jobs=len(batch), tries=tries, error=str(error))
                await asyncio.sleep(_RETRIES.delay(tries).total_seconds())
        for claiming in claimings:
            if not claiming.answer.cancelled():
                claiming.answer.set_result({i: written.claimed[i] for i in claiming.job_ids if i in written.claimed})
        if batch:
            if self._settling is not None:
                await self._settling
            self._settling = asyncio.create_task(self._settle(batch, written.offers), name="settle")

    async def _settle(self, batch: list[Finished], offers: list[StoredJob]) -> None:
        """Tell the gate; while this is under way the next transaction runs."""
        jobs = to_gate_jobs(offers, now=self._database.clock.now())
        tries = 0
        while True:
            try:
                await self._gate.settle([one.settlement for one in batch], follow_ups=jobs)
                return
            except Unavailable as error:
                tries += 1
                log.warning("collect.settle_failed", jobs=len(batch), tries=tries, error=str(error))
                await asyncio.sleep(_RETRIES.delay(tries).total_seconds())


def write_round(
    tx: Transaction,
    wanted: Sequence[int],
    batch: Sequence[Finished],
    staged: Staged,
    planning_kinds: Mapping[str, frozenset[str]],
) -> _Written:
    """Everything that one transaction writes."""
    ours = ledger.still_ours(tx, [one.ending.claim for one in batch]) if batch else set[int]()
    endings = [one.ending for one in batch if one.ending.claim.job.id in ours]
    staged.apply(tx)
    ledger.write_endings(tx, endings)
    added = runs.account_for(tx, endings, planning_kinds)
    again = [
        msgspec.structs.replace(ending.claim.job, not_before=ending.not_before)
        for ending in endings
        if ending.state is JobState.READY
    ]
    claimed = ledger.claim(tx, wanted) if wanted else {}
    return _Written(claimed, added + again, len(batch) - len(endings))
