"""Reads jobs that have their permit, calls the upstream, and hands what came of it to the committer.

A job that cannot be claimed has ended already, or was canceled: its permit goes back unused, and what is unfinished of
its run is offered again, since its follow-ups may have been lost with the worker that ended it.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from tidegate.collect import ledger
from tidegate.collect.committer import Committer
from tidegate.collect.ledger import Claim
from tidegate.collect.recovery import Recovery
from tidegate.collect.source import Source, Task
from tidegate.collect.verdicts import Finished, from_defect, from_failure, from_poison, from_reading
from tidegate.database import Database
from tidegate.flow.gate import Admitted, Gate, Outcome, settlement
from tidegate.flow.stream import Consumer
from tidegate.runtime.waiting import end, unless
from tidegate.telemetry.logs import get_logger
from tidegate.upstream import Answer, Request, UpstreamFailed

log = get_logger(__name__)

_WAIT_S = 300.0
_MOST_DELIVERIES = 5
"""A job that was with so many workers, all of which died, is not given to another."""


class Caller(Protocol):
    """Whoever makes the calls."""

    async def fetch(self, request: Request) -> Answer:
        """One call, one answer; raises `UpstreamFailed`."""
        ...


class Secrets(Protocol):
    """Whoever knows what belongs to a credential."""

    async def secret_of(self, credential: str) -> str:
        """The secret itself, to be sent and forgotten."""
        ...


class Worker:
    """A service: many jobs at once, each a task of its own."""

    def __init__(
        self,
        consumer: Consumer,
        committer: Committer,
        sources: Mapping[str, Source],
        caller: Caller,
        secrets: Secrets,
        *,
        database: Database,
        gate: Gate,
        recovery: Recovery,
        at_once: int = 200,
    ) -> None:
        self._consumer, self._committer = consumer, committer
        self._sources, self._caller, self._secrets = sources, caller, secrets
        self._database, self._gate, self._recovery = database, gate, recovery
        self._clock = database.clock
        self._at_once = at_once
        self._running: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until told to stop; then finish what is begun and give the rest back."""
        try:
            while not stopping.is_set():
                await unless(stopping, self._take_some())
            await asyncio.gather(*self._running)
        finally:
            await end(*self._running)
            await self._consumer.leave()

    async def _take_some(self) -> None:
        while len(self._running) >= self._at_once:
            self._room.clear()
            await self._room.wait()
        count = min(100, self._at_once - len(self._running))
        messages = await self._consumer.read(count, within_s=_WAIT_S)
        admitted = {int(m.fields[b"job"]): Admitted.from_fields(m.id, m.fields, m.deliveries) for m in messages}
        if not admitted:
            return
        # Shielded: a claim that was made must be worked on, also when we are told to stop meanwhile.
        await asyncio.shield(self._begin(admitted))

    async def _begin(self, admitted: dict[int, Admitted]) -> None:
        claims = await self._committer.claim(list(admitted))
        for job_id, one in admitted.items():
            if job_id in claims:
                task = asyncio.create_task(self._work(claims[job_id], one), name=f"job {job_id}")
                self._running.add(task)
                task.add_done_callback(self._ended)
        unclaimed = [one for job_id, one in admitted.items() if job_id not in claims]
        if unclaimed:
            await self._give_back(unclaimed)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("collect.job_crashed", job=task.get_name(), exc_info=error)

    async def _work(self, claim: Claim, admitted: Admitted) -> None:
        finished = await self._call(claim, admitted)
        await self._committer.finish(finished)
        self._consumer.settled([admitted.message])

    async def _call(self, claim: Claim, admitted: Admitted) -> Finished:
        if admitted.deliveries > _MOST_DELIVERIES:
            return from_poison(claim, admitted)
        source, clock = self._sources[claim.source], self._clock
        task = Task(
            spec=claim.job.spec,
            run_id=claim.job.run_id,
            user_id=claim.user_id,
            credential=admitted.credential,
            cursor=claim.cursor,
        )
        try:
            secret = await self._secrets.secret_of(admitted.credential)
            answer = await self._caller.fetch(source.request(task, secret))
            reading = source.read(task, answer)
        except UpstreamFailed as failure:
            return from_failure(claim, admitted, failure, clock.now())
        except Exception as error:
            log.exception("collect.source_failed", source=claim.source, kind=task.spec.kind, job=claim.job.id)
            return from_defect(claim, admitted, error, clock.now())
        return from_reading(claim, admitted, reading, clock.now())

    async def _give_back(self, unclaimed: list[Admitted]) -> None:
        await self._gate.settle([settlement(one, Outcome.UNUSED) for one in unclaimed])
        self._consumer.settled(one.message for one in unclaimed)
        for run_id in await self._database.read(ledger.runs_of, [int(one.job) for one in unclaimed]):
            await self._recovery.offer_run(run_id)
