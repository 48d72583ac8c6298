"""Fires a schedule on request of a message, a command or another program.

The caller names the firing by a key. The same key begins at most one run, however many callers, in how many processes,
and how often: once it has, all others are told of that run. A key that was skipped, since the user had an active run,
may be fired again when that run has ended.
"""

from collections.abc import Mapping

import msgspec
from sqlalchemy import select, update

from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import SCHEDULES_FIRED
from tidegate.engine import tracing
from tidegate.engine.job_store import StoredJob
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.schedules import firings
from tidegate.engine.schedules.due import PoolFor, begin_run
from tidegate.engine.schedules.firings import Firing, ScheduleInactive, require_key
from tidegate.engine.schedules.store import get, to_schedule
from tidegate.engine.schedules.tables import collection_schedules
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source
from tidegate.storage.sql import Database, Transaction

log = get_logger(__name__)

_c = collection_schedules.c


class Triggers:
    """Starts the run in the transaction that records the firing, and enqueues its jobs with an enqueue intent.

    `pool_for` tells which pool serves a user of a source at present, and raises `NoCredential` where none does.
    """

    def __init__(
        self,
        database: Database,
        sources: Mapping[str, Source],
        *,
        pool_for: PoolFor,
        orchestrator: Orchestrator,
        settings: CollectSettings | None = None,
    ) -> None:
        self._database, self._sources, self._pool_for = database, sources, pool_for
        self._orchestrator, self._settings = orchestrator, settings or CollectSettings()

    async def fire(self, schedule_id: int, firing_key: str) -> Firing:
        """Start a run, or return the firing that already has this key. See `Schedules.trigger`."""
        require_key(firing_key)
        schedule = await self._database.read(get, schedule_id)
        if (begun := await self._database.read(firings.begun, schedule_id, firing_key)) is not None:
            return begun
        if schedule.next_at is None:
            raise ScheduleInactive(schedule_id)
        pool = await self._pool_for(schedule.source, schedule.user_id)
        with tracing.firing(schedule_id, firing_key) as span:
            wanted = FiringRequest(schedule_id, firing_key, pool, None if span is None else span.traceparent)
            async with self._orchestrator.enqueue_intent():
                firing, jobs = await self._database.transaction(fire_one, self._sources, wanted, self._settings)
                if jobs:
                    await self._orchestrator.offer(jobs)
            tracing.fired(span, firing)
        SCHEDULES_FIRED.labels(firing.outcome).inc()
        log.info("schedule.triggered", schedule=schedule_id, key=firing_key, outcome=firing.outcome, run=firing.run_id)
        return firing


class FiringRequest(msgspec.Struct, frozen=True):
    """The request to fire one schedule under a key."""

    schedule_id: int
    firing_key: str
    pool: str
    """The pool that makes the calls of the run."""
    traceparent: str | None = None


def fire_one(
    tx: Transaction, sources: Mapping[str, Source], wanted: FiringRequest, settings: CollectSettings
) -> tuple[Firing, list[StoredJob]]:
    """Start the run of a firing, unless its key has already started one; returns the jobs to enqueue.

    Raises `NotFound`, `ScheduleInactive`, and whatever keeps the source from beginning: then nothing is recorded.
    """
    schedule_id, firing_key = wanted.schedule_id, wanted.firing_key
    # Locked: of two requests with the same key, the second one waits and finds the firing.
    row = tx.execute(select(collection_schedules).where(_c.id == schedule_id).with_for_update()).one_or_none()
    if row is None:
        raise NotFound("schedule", schedule_id)
    if (begun := firings.begun(tx, schedule_id, firing_key)) is not None:
        return begun, []
    schedule = to_schedule(row)
    if schedule.next_at is None:
        raise ScheduleInactive(schedule_id)
    fired = begin_run(tx, sources, schedule, wanted.pool, settings, traceparent=wanted.traceparent)
    if fired.run_id is not None:
        tx.execute(update(collection_schedules).where(_c.id == schedule_id).values(last_run_id=fired.run_id))
    firing = fired.firing(firing_key, tx.now)
    firings.record(tx, [firing])
    return firing, list(fired.jobs)
