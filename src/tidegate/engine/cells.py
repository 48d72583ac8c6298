"""Cells: the processes that know one source, with a leader, a gate, a job stream and timers of their own.

A process that does not know a source is no member of its cell and gets none of its jobs. The leader of the cell
registers the credentials of the source. A run of a source that no process knows waits in SQL; `why_waiting` reports it.
The first process that knows the source leads its cell, registers its credentials and enqueues everything unfinished.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from tidegate.connections import build_context
from tidegate.core.errors import TidegateError, Unavailable
from tidegate.engine.committer import Moved
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.run_counters import run_ended
from tidegate.engine.runs import Run
from tidegate.runtime.outage import Outage
from tidegate.runtime.supervisor import StopReport, Supervisor
from tidegate.runtime.waiting import first_of, unless
from tidegate.storage.sql import outbox
from tidegate.system import Context


def cell_context(context: Context, source: str) -> Context:
    """Return a context with the same connections and the keys of the cell of `source`."""
    return build_context(
        context.settings,
        context.valkey,
        context.database,
        shard=f"source-{source}",
        owner=context.owner,
        part_of=source,
    )


def source_of_pool(pool: str) -> str:
    """Return the source of a pool. Pools are named `SOURCE` or `SOURCE:...`."""
    return pool.partition(":")[0]


def orchestrator_of(context: Context, source: str, *, on_moved: Moved = lambda _: None) -> Orchestrator:
    """Return an orchestrator that retries and cancels runs of a source that this process need not know.

    It cannot start runs.
    """
    cell = cell_context(context, source)
    return Orchestrator(cell.database, cell.gate, {}, on_moved=on_moved)


async def why_waiting(context: Context, runs: Sequence[Run]) -> dict[int, str]:
    """Return those of `runs` that wait because no process knows their source, by id, with the reason.

    If Valkey is unavailable, the result is empty.
    """
    active = [run for run in runs if run.status in ACTIVE_RUNS]
    try:
        unknown = {source for source in {run.source for run in active} if not await _is_known(context, source)}
    except Unavailable:
        return {}
    return {run.id: f"no process knows the source {run.source!r}" for run in active if run.source in unknown}


async def _is_known(context: Context, source: str) -> bool:
    return any(member.remaining_ms > 0 for member in await cell_context(context, source).membership.members())


class CellNotifier:
    """A service of every process: wakes the leader of a cell after this process committed an event for it.

    Such events are the ends of runs that are retried or canceled, and replayed dead letters. `check` finds those that a
    process committed before it died; it is called when this service starts, and by the leader after a death.
    """

    def __init__(self, context: Context) -> None:
        self._context, self._outage = context, Outage("cells.notify")
        self._prefix = run_ended("")
        self._sources: set[str] = set()
        self._changed, self._must_check = asyncio.Event(), True

    def check(self) -> None:
        """Wake the leaders of all cells that have events to handle."""
        self._must_check = True
        self._changed.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Wake leaders after commits until `stopping` is set, also for the commits before it was set."""
        silence = self._context.database.subscribe_prefix(outbox.topic_of(self._prefix), self._note)
        self.check()
        try:
            while self._changed.is_set() or not stopping.is_set():
                await unless(stopping, self._changed.wait())
                if self._changed.is_set():
                    self._changed.clear()
                    with suppress(Unavailable):  # stopped meanwhile: a leader checks after the death
                        await self._outage.retry(self._wake, stopping=stopping)
        finally:
            silence()

    def _note(self, topic: str) -> None:
        self._sources.add(topic.removeprefix(outbox.topic_of(self._prefix)))
        self._changed.set()

    async def _wake(self) -> None:
        """Wake the leaders of all sources with pending events. During an outage, the rest is kept for the next call."""
        # Sources that are added during an await are handled in the next turn; failed ones are added again.
        if self._must_check:
            self._must_check = False
            try:
                kinds = await self._context.database.read(outbox.pending_kinds, self._prefix)
            except Unavailable:
                self._must_check = True
                raise
            self._sources |= {kind.removeprefix(self._prefix) for kind in kinds}
        for source in sorted(self._sources):
            self._sources.discard(source)
            try:
                await cell_context(self._context, source).commits.notify()
            except Unavailable:
                self._sources.add(source)
                raise


class CellCutOff(TidegateError):
    """Services of a cell did not finish what they had begun; other processes of the cell take it over."""

    def __init__(self, report: StopReport) -> None:
        super().__init__(f"did not stop in time: {', '.join([*report.failed, *report.cancelled])}")


class CellService:
    """A service that runs the process of a cell inside another process; each start builds a new supervisor."""

    def __init__(self, build: Callable[[], Supervisor]) -> None:
        self._build = build

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set, then stop all services of the cell in order; at once if the task is cancelled.

        Raises `CellCutOff` if a service did not finish, so that the process reports it.
        """
        process, ended = self._build(), asyncio.Event()
        running = asyncio.create_task(process.run(), name="cell")
        running.add_done_callback(lambda _: ended.set())
        try:
            await first_of(stopping, ended)
            process.stop()
            # Shielded, so that a cancellation does not end the supervisor before its services have stopped.
            report = await asyncio.shield(running)
        except asyncio.CancelledError:
            process.stop()
            # The second call cancels the services that still run.
            process.stop()
            await running
            raise
        if not report.is_clean:
            raise CellCutOff(report)
