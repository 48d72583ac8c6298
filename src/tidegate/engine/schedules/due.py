"""Starts the runs of schedules: of due ones, and of those that a message, a command or another program fires.

The timekeeper of the leader calls `DueSchedules` and sleeps until the next due time. The run and the next due time of a
schedule are written in one transaction, so a due time starts at most one run, even if a process dies or two processes
act as leader. The transaction also records the firing with the due time as its key; a due time that was fired before
starts no run. Missed due times start one run together. Many due schedules are processed in several small transactions,
so that other writers are not blocked for long.

A caller of `Triggers` names the firing by a key. The same key begins at most one run, however many callers use it, in
however many processes: each of them gets that run. A key that was skipped, since the user had an active run, may be
fired again when that run has ended.
"""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError

from tidegate.core.clock import milliseconds
from tidegate.core.errors import InvalidArgument, NoCredential, NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import runs, tracing
from tidegate.engine.job_store import StoredJob
from tidegate.engine.metrics import SCHEDULES_FIRED
from tidegate.engine.orchestrator import Orchestrator, Trigger
from tidegate.engine.runs import NewRun, RunActive
from tidegate.engine.schedules import firings
from tidegate.engine.schedules.firings import (
    Firing,
    FiringOutcome,
    ScheduleInactive,
    collection_schedules,
    due_key,
    require_key,
)
from tidegate.engine.schedules.store import Schedule, get, next_time, to_schedule
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.faults import DatabaseErrorKind, classify

log = get_logger(__name__)

_AT_ONCE = 50
"""Schedules per transaction; few, so that commits of workers do not wait long."""
_c = collection_schedules.c
_NONE: Mapping[int, str | None] = {}

PoolFor = Callable[[str, str], Awaitable[str]]
"""Returns the pool that serves a user of a source: `await pool_for(source, user_id)`; raises `NoCredential`."""
Pools = Mapping[tuple[str, str], str | NoCredential]
"""The pools of users by source and user id, or the error if a user has none."""


class FiredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A due schedule with the outcome of its firing."""

    schedule: Schedule
    outcome: FiringOutcome
    run_id: int | None = None
    jobs: Sequence[StoredJob] = ()
    reason: str | None = None

    def firing(self, key: str, at: datetime) -> Firing:
        """The firing to record."""
        return Firing(
            schedule_id=self.schedule.id,
            firing_key=key,
            fired_at=at,
            outcome=self.outcome,
            run_id=self.run_id,
            reason=self.reason,
        )


class DueSchedules:
    """Fires due schedules for the timekeeper.

    `pool_for` returns the pool that serves a user of a source, and raises `NoCredential` if there is none. `offer`
    enqueues new jobs. If it is unknown whether that happened, `on_unknown_outcome` requests a recovery.
    """

    def __init__(
        self,
        database: Database,
        sources: Mapping[str, Source],
        *,
        pool_for: PoolFor,
        offer: Callable[[Sequence[StoredJob]], Awaitable[None]],
        on_unknown_outcome: Callable[[], object],
        settings: CollectSettings | None = None,
    ) -> None:
        self._database, self._sources, self._settings = database, sources, settings or CollectSettings()
        self._pool_for, self._offer, self._on_unknown_outcome = pool_for, offer, on_unknown_outcome

    async def fire(self) -> int | None:
        """Fire due schedules, or a part of them. Returns the ms until the next due time, or None without one."""
        next_at = await self._database.read(_earliest, self._sources)
        if next_at is not None and next_at <= self._database.clock.now():
            await self._fire_some()
            next_at = await self._database.read(_earliest, self._sources)
        if next_at is None:
            return None
        # Rounded up, because nothing is due before that time.
        return max(0, math.ceil((next_at - self._database.clock.now()) / timedelta(milliseconds=1)))

    async def _fire_some(self) -> None:
        due = await self._database.read(_due, self._sources, _AT_ONCE)
        # Before the transaction, which is a plain function and cannot await.
        pools = {key: await self._pool_of(*key) for key in {(each.source, each.user_id) for each in due}}
        spans = tracing.begin_firings({each.id: due_key(each.next_at) for each in due if each.next_at is not None})
        traced = {schedule_id: span.traceparent for schedule_id, span in spans.items()}
        ids = [each.id for each in due]
        try:
            fire = partial(fire_some, traced=traced)
            fired = await self._database.transaction(fire, self._sources, pools, ids, self._settings)
            for each in fired:
                _log(each, self._database.clock.now())
                tracing.end_firing(spans.get(each.schedule.id), each.outcome, each.run_id, each.reason)
            jobs = [job for each in fired for job in each.jobs]
            if jobs:
                await self._offer(jobs)
        except BaseException:
            # The commit may have happened, and no other process enqueues its jobs.
            self._on_unknown_outcome()
            raise

    async def _pool_of(self, source: str, user_id: str) -> str | NoCredential:
        try:
            return await self._pool_for(source, user_id)
        except NoCredential as lack:
            return lack

    def __repr__(self) -> str:
        return f"DueSchedules({self._database.name})"


def fire_some(
    tx: Transaction,
    sources: Mapping[str, Source],
    pools: Pools,
    ids: Sequence[int],
    settings: CollectSettings,
    *,
    traced: Mapping[int, str | None] = _NONE,
) -> list[FiredSchedule]:
    """Start the runs of due schedules and set their next due times. `pools` has the pool of each user.

    `traced` has the trace contexts of schedules, by id.
    """
    due = select(collection_schedules).where(_c.id.in_(ids), _c.next_at <= tx.now).order_by(_c.id)
    # Locked: if two processes act as leader, the second one waits and finds the due times changed.
    schedules = [to_schedule(row) for row in tx.execute(due.with_for_update()).all()]
    keys = {each.id: due_key(each.next_at) for each in schedules if each.next_at is not None}
    before = firings.find(tx, keys)
    fired = [
        _repeated(each, before[each.id])
        if each.id in before
        else _begin(tx, sources, pools, each, settings, traceparent=traced.get(each.id))
        for each in schedules
    ]
    for each in fired:
        _set_next_time(tx, each)
    # A repeated due time keeps the record of its first firing.
    new = [each for each in fired if each.schedule.id not in before]
    firings.record(tx, [each.firing(keys[each.schedule.id], tx.now) for each in new])
    return fired


def begin_run(
    tx: Transaction,
    sources: Mapping[str, Source],
    schedule: Schedule,
    pool: str,
    settings: CollectSettings,
    *,
    traceparent: str | None = None,
) -> FiredSchedule:
    """Start the run of a schedule, unless its user has an active one. Passes on errors of the source and of the run."""
    try:
        source, subject = _source(sources, schedule), schedule.subject
        beginning = NewRun.of(source, subject, pool, Trigger.SCHEDULED, settings, traceparent=traceparent)
        with tx.savepoint():
            run_id, jobs = runs.begin(tx, beginning)
    except RunActive as active:
        return FiredSchedule(schedule=schedule, outcome=FiringOutcome.SKIPPED, reason=str(active))
    except IntegrityError:  # not every database shows this transaction the concurrent run
        reason = f"a run of {schedule.login} was started at the same time"
        return FiredSchedule(schedule=schedule, outcome=FiringOutcome.SKIPPED, reason=reason)
    return FiredSchedule(schedule=schedule, outcome=FiringOutcome.BEGUN, run_id=run_id, jobs=jobs)


def _begin(
    tx: Transaction,
    sources: Mapping[str, Source],
    pools: Pools,
    schedule: Schedule,
    settings: CollectSettings,
    *,
    traceparent: str | None,
) -> FiredSchedule:
    """Begin the run of a due schedule. An error of the schedule becomes a failed firing; database errors are raised."""
    pool = pools[schedule.source, schedule.user_id]
    if isinstance(pool, NoCredential):
        return FiredSchedule(schedule=schedule, outcome=FiringOutcome.FAILED, reason=str(pool))
    try:
        return begin_run(tx, sources, schedule, pool, settings, traceparent=traceparent)
    except Exception as error:
        if classify(error).kind is not DatabaseErrorKind.OTHER:
            raise  # an error of the database, not of this schedule
        reason = f"{type(error).__name__}: {error}"[:2000]
        return FiredSchedule(schedule=schedule, outcome=FiringOutcome.FAILED, reason=reason)


def _repeated(schedule: Schedule, before: Firing) -> FiredSchedule:
    """The outcome for a due time that was fired before."""
    reason = before.reason or f"this due time was already fired: run {before.run_id}"
    return FiredSchedule(schedule=schedule, outcome=FiringOutcome.SKIPPED, reason=reason)


def _source(sources: Mapping[str, Source], schedule: Schedule) -> Source:
    if schedule.source not in sources:
        raise InvalidArgument("source", schedule.source, f"this process knows {', '.join(sorted(sources)) or 'none'}")
    return sources[schedule.source]


def _set_next_time(tx: Transaction, fired: FiredSchedule) -> None:
    """Set the next due time after the current time, so that missed due times are not fired one by one."""
    schedule, reason = fired.schedule, fired.reason
    next_at = None
    try:
        next_at = next_time(schedule.cron, schedule.timezone, after=tx.now)
    except InvalidArgument as error:  # time zone unknown on this machine: paused until an operator resumes it
        reason = f"paused: {error}"
    values: dict[str, Any] = {"next_at": next_at, "last_due_at": schedule.next_at, "last_error": reason}
    if fired.run_id is not None:
        values["last_run_id"] = fired.run_id
    tx.execute(update(collection_schedules).where(_c.id == schedule.id).values(values))


def _due(tx: Transaction, sources: Collection[str], limit: int) -> list[Schedule]:
    """Due schedules of these sources, oldest due time first. Other processes fire those of other sources."""
    ours = _c.source.in_(sorted(sources))
    due = select(collection_schedules).where(_c.next_at <= tx.now, ours).order_by(_c.next_at, _c.id)
    return [to_schedule(row) for row in tx.execute(due.limit(limit))]


def _earliest(tx: Transaction, sources: Collection[str]) -> datetime | None:
    return tx.execute(select(func.min(_c.next_at)).where(_c.source.in_(sorted(sources)))).scalar_one()


def _log(fired: FiredSchedule, now: datetime) -> None:
    schedule = fired.schedule
    SCHEDULES_FIRED.labels(fired.outcome).inc()
    late_ms = 0 if schedule.next_at is None else milliseconds(now - schedule.next_at)
    match fired.outcome:
        case FiringOutcome.BEGUN:
            log.info("schedule.fired", schedule=schedule.id, login=schedule.login, run=fired.run_id, late_ms=late_ms)
        case FiringOutcome.SKIPPED:
            log.info("schedule.skipped", schedule=schedule.id, login=schedule.login, reason=fired.reason)
        case FiringOutcome.FAILED:
            log.error("schedule.failed", schedule=schedule.id, login=schedule.login, reason=fired.reason)


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
