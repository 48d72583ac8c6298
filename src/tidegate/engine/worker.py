"""Executes dispatched jobs: reads batches from the stream, has them claimed, runs their calls, passes on the results.

Reading, claiming and calling overlap. Calls run in lanes, which are tasks that execute one job after the other. Another
lane starts only when all lanes wait for an answer: a source that answers at once needs one task, and a slow one has as
many calls in flight as `at_once` allows.

A job that cannot be claimed ended before, or was canceled. Its permit is returned unused, and the unfinished jobs of
its run are enqueued again, because the worker that ended it may have died before it enqueued the follow-ups.

The pipeline and its crash table are described in `committer`.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache, partial
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

from tidegate.core.arguments import require_positive
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import metrics, tracing
from tidegate.engine.calls import Calls
from tidegate.engine.committer import Committer
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.job_log import timed
from tidegate.engine.job_store import Claim
from tidegate.primitives.gate import Admitted, Gate, Outcome, settlement
from tidegate.primitives.stream import MessageSource
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, unless

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

log = get_logger(__name__)

_WAIT_S = 300.0
_MOST_READ = 500
_MOST_CLAIMING = 2
"""Batches of claims: one that is being written, and one for the next transaction."""


class Worker:
    """The service that executes jobs, `at_once` at a time."""

    def __init__(
        self,
        consumer: MessageSource,
        committer: Committer,
        calls: Calls,
        *,
        gate: Gate,
        recovery: Recovery,
        at_once: int = 200,
    ) -> None:
        require_positive("at_once", at_once)
        self._consumer, self._committer, self._calls = consumer, committer, calls
        self._gate, self._recovery = gate, recovery
        self._at_once = self._most_in_hand = at_once
        self._claiming = 0
        """Batches that were read and are not claimed yet."""
        self._claimed: deque[tuple[Claim, Admitted, Span | None]] = deque()
        self._calling = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_opening = False
        self._room = asyncio.Event()
        self._outage = Outage("collect.read")

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; then finish running jobs and return the rest.

        If the task is cancelled before that, calls may have been sent without an answer. Then the messages are left as
        those of a dead worker, so that no permit is used for a second call.
        """
        is_cut_off = True
        try:
            await unless(stopping, self._take_all())
            # Tasks start other tasks, so wait until none is left.
            while self._tasks:
                await asyncio.wait(self._tasks)
            # Before the consumer leaves, which would redeliver the messages of unsettled results.
            await self._committer.settled()
            is_cut_off = False
        finally:
            await end(*self._tasks)
            self._claimed.clear()
            self._is_opening = False
            # With a counted delivery, the next worker treats the permit as spent. See docs/decisions/0022.
            await self._consumer.leave(counts=is_cut_off)

    async def _take_all(self) -> None:
        while True:
            await self._retry_outages(self._take_some)

    async def _retry_outages(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step until the server is available; running calls continue in the meantime."""
        await self._outage.retry(step)

    async def _take_some(self) -> None:
        """Read a batch while another is being claimed, but not more than this process has room for."""
        while self._has_room <= 0 or self._claiming >= _MOST_CLAIMING:
            # There is no await between the check and this line, so no signal is lost.
            self._room.clear()
            await self._room.wait()
        messages = await self._consumer.read(min(_MOST_READ, self._has_room), within_s=_WAIT_S)
        admitted = {int(m.fields[b"job"]): Admitted.from_fields(m.id, m.fields, m.deliveries) for m in messages}
        if admitted:
            # A task of its own: claimed jobs must be executed, even if `stopping` is set meanwhile.
            self._start(self._claim(admitted), f"claim {len(admitted)} jobs")

    @property
    def _has_room(self) -> int:
        # Jobs that are being claimed are not subtracted: `_MOST_CLAIMING` bounds their batches.
        return self._most_in_hand - len(self._claimed) - self._calling

    async def _claim(self, admitted: dict[int, Admitted]) -> None:
        """Claim jobs in SQL, queue the claimed ones for the lanes, and give back the permits of the others."""
        self._claiming += 1
        read_ns = time_ns()
        try:
            claims = await self._committer.claim(list(admitted), admitted)
            await self._calls.clear([admitted[job_id] for job_id in claims])
            for job_id, one in admitted.items():
                if (claim := claims.get(job_id)) is not None:
                    span = None if claim.traceparent is None else tracing.begin_job(claim, one, read_ns)
                    self._claimed.append((claim, one, span))
        finally:
            self._claiming -= 1
            self._room.set()
        # Calls begin before unclaimed permits are returned, which may have to wait for a server.
        self._open_lane()
        if unclaimed := [one for job_id, one in admitted.items() if job_id not in claims]:
            await self._retry_outages(partial(self._give_back, unclaimed))

    def _open_lane(self) -> None:
        if self._claimed and not self._is_opening and self._calling < self._at_once:
            # The task begins in a later iteration of the loop. Until then, no second lane is opened for the same job.
            self._is_opening = True
            self._start(self._lane(), "lane")

    async def _lane(self) -> None:
        """Execute claimed jobs one after the other until none is left.

        Before each call, another lane is opened for the next job, in case the call does not return at once.
        """
        self._is_opening = False
        self._calling += 1
        jobs = 0
        try:
            while self._claimed:
                claim, admitted, span = self._claimed.popleft()
                self._open_lane()  # for the next job, in case this call does not return at once
                began = monotonic()
                if span is None:
                    finished = await self._calls.make(claim, admitted)
                else:
                    finished = await tracing.work_on(self._calls.make, claim, admitted, span)
                await self._committer.finish(timed(finished, monotonic() - began))
                _time_of(claim.job.spec.kind).observe(monotonic() - began)
                jobs += 1
        finally:
            # Other lanes are open, so calls have to wait for answers: read no more jobs than can be called at once.
            if self._calling > 1:
                self._most_in_hand = self._at_once
            elif jobs > 1:  # no call had to wait: more jobs per read save round trips
                self._most_in_hand = max(self._at_once, _MOST_READ)
            self._calling -= 1
            self._room.set()

    async def _give_back(self, unclaimed: list[Admitted]) -> None:
        """Return permits unused. Enqueue before the acknowledgement: after it, recovery would not find these jobs."""
        job_ids = [int(one.job) for one in unclaimed]
        await self._recovery.offer_affected_runs(job_ids)
        await self._gate.settle([settlement(one, Outcome.UNUSED) for one in unclaimed])
        self._consumer.settled(one.message for one in unclaimed)
        # Until now the gate knew these jobs: if one was retried meanwhile, its enqueueing was ignored.
        await self._recovery.offer_jobs(job_ids)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("collect.job_crashed", job=task.get_name(), exc_info=error)


@cache
def _time_of(kind: str) -> metrics.Histogram:
    """Return the histogram of a kind. It is cached, because the lookup costs more than the observation."""
    return metrics.JOB_PROCESSING_TIME.labels(kind)
