"""Cells: the processes that know one source, with a leader, a gate and a job stream of their own.

A run whose source no process knows waits in SQL. `why_waiting` reports it; the first process that knows the source
leads its cell, enrols its credentials and offers everything unfinished.
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

SHARED_SOURCES = frozenset({"github", "crawl"})
"""The sources that every process of the command line knows: they share one cell."""


def cell_context(context: Context, source: str) -> Context:
    """The same connections with keys of their own, for the processes that know `source`.

    A process that does not know the source is no member of its cell, and so is given none of its jobs. Its credentials
    are enrolled by the leader of the cell.
    """
    shard = f"source-{source}"
    return build_context(context.settings, context.valkey, context.database, shard=shard, owner=context.owner)


def cell_of(parts: Context, source: str) -> Context:
    """The parts with which the jobs of a source are offered, dispatched and executed."""
    return parts if source in SHARED_SOURCES else cell_context(parts, source)


def orchestrator_of(parts: Context, source: str, *, on_moved: Moved = lambda _: None) -> Orchestrator:
    """Retries and cancels runs of a source, also in a process that does not know the source; it begins none."""
    cell = cell_of(parts, source)
    return Orchestrator(cell.database, cell.gate, {}, on_moved=on_moved)


async def why_waiting(parts: Context, runs: Sequence[Run]) -> dict[int, str]:
    """Those of `runs` that wait because no process knows their source, by number, with the reason.

    Where the server cannot be asked, nothing is reported.
    """
    active = [run for run in runs if run.status in ACTIVE_RUNS and run.source not in SHARED_SOURCES]
    try:
        unknown = {source for source in {run.source for run in active} if not await _is_known(parts, source)}
    except Unavailable:
        return {}
    return {run.id: f"no process knows the source {run.source!r}" for run in active if run.source in unknown}


async def _is_known(parts: Context, source: str) -> bool:
    return any(member.remaining_ms > 0 for member in await cell_of(parts, source).membership.members())


class CellNotifier:
    """A service of processes outside the cells: wakes the leader of a cell after a commit with an event for it.

    Such events are the ends of runs that are retried, and replayed dead letters. `check` finds those that a process
    committed before it died; it is called when this service starts, and by the leader after a death.
    """

    def __init__(self, parts: Context) -> None:
        self._parts, self._outage = parts, Outage("cells.notify")
        self._prefix = run_ended("")
        self._sources: set[str] = set()
        self._changed, self._must_check = asyncio.Event(), True

    def check(self) -> None:
        """Wake the leaders of all cells that have events to handle."""
        self._must_check = True
        self._changed.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Wake leaders after commits, until told to stop; those of commits until then are woken."""
        silence = self._parts.database.subscribe_prefix(outbox.topic_of(self._prefix), self._note)
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
        # What is reported during an await is kept for the next turn, and what fails is done again.
        if self._must_check:
            self._must_check = False
            try:
                kinds = await self._parts.database.read(outbox.pending_kinds, self._prefix)
            except Unavailable:
                self._must_check = True
                raise
            self._sources |= {kind.removeprefix(self._prefix) for kind in kinds}
        for source in sorted(self._sources - SHARED_SOURCES):
            self._sources.discard(source)
            try:
                await cell_of(self._parts, source).commits.notify()
            except Unavailable:
                self._sources.add(source)
                raise
        self._sources -= SHARED_SOURCES


class CellCutOff(TidegateError):
    """Services of a cell did not finish what they had begun; other processes of the cell take it over."""

    def __init__(self, report: StopReport) -> None:
        super().__init__(f"did not stop in time: {', '.join([*report.failed, *report.cancelled])}")


class CellService:
    """A service that is a process of a cell; started again, it begins with a new supervisor."""

    def __init__(self, build: Callable[[], Supervisor]) -> None:
        self._build = build

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until told to stop, then stop all services of the cell in order; a cancelled one stops at once.

        Raises `CellCutOff` when a service did not finish, so that the process reports it."""
        process, ended = self._build(), asyncio.Event()
        running = asyncio.create_task(process.run(), name="cell")
        running.add_done_callback(lambda _: ended.set())
        try:
            await first_of(stopping, ended)
            process.stop()
            report = await asyncio.shield(running)
        except asyncio.CancelledError:
            process.stop()
            process.stop()
            await running
            raise
        if not report.is_clean:
            raise CellCutOff(report)
