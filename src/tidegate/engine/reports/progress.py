"""The progress of runs and their jobs. Every query uses an index."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import ColumnElement, Select, asc, desc, func, select, union_all

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.core.errors import NotFound
from tidegate.engine import executions, job_store, runs
from tidegate.engine.executions import Execution
from tidegate.engine.lifecycle import ACTIVE_RUNS, UNFINISHED_JOBS, JobState, RunState
from tidegate.engine.runs import Run
from tidegate.engine.tables import collection_runs, in_state, page_jobs
from tidegate.storage.sql import Transaction


class KindProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one kind in a run, counted by state."""

    run_id: int
    kind: str
    total: int
    waiting: int
    """Jobs that wait for a permit or for a worker."""
    running: int
    retrying: int
    """Jobs that will be retried after a given time."""
    succeeded: int
    unavailable: int
    """Jobs for resources that the upstream withholds. The run counts them as succeeded."""
    failed: int
    canceled: int

    @property
    def ended(self) -> int:
        """Jobs that have ended."""
        return self.succeeded + self.unavailable + self.failed + self.canceled


class ResourceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of one kind that the jobs of a run belong to, such as repositories."""

    total: int
    ended: int
    """Resources without a job that is unfinished or canceled."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a job without the parameters that only its source understands."""

    id: int
    run_id: int
    kind: str
    resource: str
    page: str
    status: JobState
    attempts: int
    max_attempts: int
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    last_error: str | None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed, will be retried or is unavailable, with the reason."""

    run_id: int
    job_id: int
    kind: str
    resource: str
    reason: str


def list_runs(
    tx: Transaction,
    *,
    login: str | None = None,
    source: str | None = None,
    states: Sequence[RunState] = (),
    before: int | None = None,
    limit: int = 50,
) -> list[Run]:
    """Return at most `limit` runs, newest first.

    The filters are a subject (`login`), a source, a set of states, and runs older than the run `before`.
    """
    require_positive("limit", limit)
    run = collection_runs.c
    those = [] if before is None else [run.id < before]
    if login is not None:
        those.append(run.login == login)
        # A user has few runs: coalesce keeps the server from using the indexes on the source and on the state.
        if source is not None:
            those.append(func.coalesce(run.source, "") == source)
        if states:
            those.append(func.coalesce(run.status, "").in_(states))
    elif states or source is not None:
        if source is not None:
            those.append(run.source == source)
        # Also for all states, one query per state: the indexes have the ids of each state in order.
        pages = [select(run.id).where(*those, run.status == state) for state in set(states or RunState)]
        those = [run.id.in_(_first_of(tx, pages, limit, desc))]
    wanted = select(collection_runs).where(*those).order_by(run.id.desc()).limit(limit)
    return [runs.from_row(row) for row in tx.execute(wanted)]


def runs_by_id(tx: Transaction, run_ids: Sequence[int]) -> list[Run]:
    """Return these runs, ordered by id. Unknown ids are omitted."""
    wanted = select(collection_runs).where(collection_runs.c.id.in_(sorted(set(run_ids))))
    return [runs.from_row(row) for row in tx.execute(wanted.order_by(collection_runs.c.id))]


def is_any_active(tx: Transaction, run_ids: Sequence[int]) -> bool:
    """Whether at least one of these runs has not ended."""
    run = collection_runs.c
    wanted = select(run.id).where(run.id.in_(sorted(set(run_ids))), run.status.in_(ACTIVE_RUNS)).limit(1)
    return tx.execute(wanted).first() is not None


def kinds_of(tx: Transaction, run_ids: Sequence[int]) -> list[KindProgress]:
    """Count the jobs of these runs by run and kind, in that order. Runs without jobs are omitted."""
    job = page_jobs.c
    ended, unfinished = (
        select(job.run_id, job.job_type, state.label("state"), func.count().label("jobs"))
        .where(job.run_id.in_(sorted(set(run_ids))), those)
        .group_by(job.run_id, state, job.job_type)
        # An index alone counts the ended jobs, in its order. Only for the unfinished ones, the rows are read.
        for state, those in ((job.end_state, job.end_state.is_not(None)), (job.status, job.end_state.is_(None)))
    )
    found: dict[tuple[int, str], dict[JobState, int]] = {}
    for run_id, kind, state, count in tx.execute(union_all(ended, unfinished)):
        found.setdefault((run_id, kind), {})[JobState(state)] = count
    return [_kind(run_id, kind, counts) for (run_id, kind), counts in sorted(found.items())]


def resources_of(
    tx: Transaction, run_ids: Sequence[int], prefix: str, *, besides: Collection[str] = ()
) -> dict[int, ResourceProgress]:
    """Count the resources of these runs that begin with `prefix`; runs without them are omitted.

    Jobs of the kinds `besides`, which find the resources, do not count.
    """
    job = page_jobs.c
    # Regardless of case: a subject and a list can name the same resource differently.
    counted = select(job.run_id, func.count(func.lower(job.resource_key).distinct())).where(
        job.run_id.in_(sorted(set(run_ids))),
        job.resource_key.startswith(prefix, autoescape=True),
        job.job_type.not_in(sorted(besides)),
    )
    counted = counted.group_by(job.run_id)
    total = {row[0]: row[1] for row in tx.execute(counted)}
    unfinished = counted.where(in_state(*UNFINISHED_JOBS, JobState.CANCELED))
    left = {row[0]: row[1] for row in tx.execute(unfinished)}
    return {run_id: ResourceProgress(total=count, ended=count - left.get(run_id, 0)) for run_id, count in total.items()}


def jobs_of(
    tx: Transaction, run_id: int, *, states: Sequence[JobState] = (), after: int = 0, limit: int = 100
) -> list[JobView]:
    """Return at most `limit` jobs of a run with ids above `after`, ordered by id."""
    require_positive("limit", limit)
    require_not_negative("after", after)
    job = page_jobs.c
    # Also for all states, one query per state: the index has the ids of each state in order, so no database scans jobs
    # of other runs. Complete rows, which can be large, are read for one page only.
    numbers = select(job.id).where(job.run_id == run_id, job.id > after)
    pages = [numbers.where(in_state(state)) for state in set(states or JobState)]
    rows = tx.execute(_VIEWED.where(job.id.in_(_first_of(tx, pages, limit, asc))).order_by(job.id))
    return [msgspec.convert(row, JobView, from_attributes=True) for row in rows]


def failures_of(tx: Transaction, run_ids: Sequence[int], limit: int = 100) -> list[Failure]:
    """Return the first failed jobs of these runs."""
    return _reasons_of(tx, run_ids, JobState.FAILED, limit)


def unavailable_of(tx: Transaction, run_ids: Sequence[int], limit: int = 100) -> list[Failure]:
    """Return the first jobs of these runs for resources that the upstream withholds."""
    return _reasons_of(tx, run_ids, JobState.UNAVAILABLE, limit)


def retrying_of(tx: Transaction, run_ids: Sequence[int], limit: int = 100) -> list[Failure]:
    """Return the first jobs of these runs that will be retried, with the result of their last attempt."""
    return _reasons_of(tx, run_ids, JobState.READY, limit)


def _first_of(
    tx: Transaction, pages: Sequence[Select[int]], limit: int, order: Callable[[ColumnElement[int]], ColumnElement[int]]
) -> list[int]:
    """Merge the first ids of several pages. An index returns the ids of each page in order, but not of all pages."""
    firsts = [page.order_by(order(page.selected_columns[0])).limit(limit).subquery() for page in pages]
    merged = union_all(*(select(first.c.id) for first in firsts)).subquery()
    return list(tx.execute(select(merged.c.id).order_by(order(merged.c.id)).limit(limit)).scalars())


def _reasons_of(tx: Transaction, run_ids: Sequence[int], state: JobState, limit: int) -> list[Failure]:
    job = page_jobs.c
    those = select(job.run_id, job.id, job.job_type, job.resource_key, job.last_error).where(
        job.run_id.in_(run_ids), in_state(state)
    )
    return [
        Failure(run_id=row[0], job_id=row[1], kind=row[2], resource=row[3], reason=row[4] or "")
        for row in tx.execute(those.order_by(job.id).limit(limit))
    ]


_VIEWED = select(
    page_jobs.c.id,
    page_jobs.c.run_id,
    page_jobs.c.job_type.label("kind"),
    page_jobs.c.resource_key.label("resource"),
    page_jobs.c.page_key.label("page"),
    page_jobs.c.status,
    page_jobs.c.attempt_count.label("attempts"),
    page_jobs.c.max_attempts,
    page_jobs.c.created_at,
    page_jobs.c.not_before,
    page_jobs.c.started_at,
    page_jobs.c.completed_at,
    page_jobs.c.last_error,
)


def _kind(run_id: int, kind: str, counts: Mapping[JobState, int]) -> KindProgress:
    return KindProgress(
        run_id=run_id,
        kind=kind,
        total=sum(counts.values()),
        waiting=counts.get(JobState.ENQUEUED, 0),
        running=counts.get(JobState.RUNNING, 0),
        retrying=counts.get(JobState.READY, 0),
        succeeded=counts.get(JobState.SUCCEEDED, 0),
        unavailable=counts.get(JobState.UNAVAILABLE, 0),
        failed=counts.get(JobState.FAILED, 0),
        canceled=counts.get(JobState.CANCELED, 0),
    )


class JobDetail(JobView, frozen=True, kw_only=True):
    """A job with its run and its executions."""

    source: str
    login: str
    run_status: RunState
    executions: list[Execution]
    """The newest ones, in order; empty where none has ended."""
    unreported_claims: int
    """Claims without an execution among the newest ones: their worker died or lost its lease, or the run ended."""


def job_of(tx: Transaction, job_id: int) -> JobDetail:
    """Return a job; raise `NotFound` where there is none."""
    run_ids = job_store.runs_of(tx, [job_id])
    if not run_ids:
        raise NotFound("job", job_id)
    run, [view] = runs.get(tx, run_ids[0]), jobs_of(tx, run_ids[0], after=job_id - 1, limit=1)
    ended = executions.of_job(tx, job_id)
    return JobDetail(
        **msgspec.structs.asdict(view),
        source=run.source,
        login=run.login,
        run_status=run.status,
        executions=ended,
        unreported_claims=_unreported(tx, view, ended),
    )


def _unreported(tx: Transaction, view: JobView, found: Sequence[Execution]) -> int:
    """Count the claims that have no execution. A job that ended before executions were recorded has none at all."""
    if not found and view.status is not JobState.RUNNING:
        return 0
    fence = tx.execute(select(page_jobs.c.fence).where(page_jobs.c.id == view.id)).scalar_one()
    newest = range(max(1, fence - executions.KEPT + 1), fence if view.status is JobState.RUNNING else fence + 1)
    return len(set(newest) - {one.fence for one in found})
