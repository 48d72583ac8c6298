"""`/v1/runs/{run_id}/jobs` and `/v1/jobs`: the jobs of a run, their executions and requests."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import NotFound
from tidegate.engine import executions, job_store, runs
from tidegate.engine.api.run_details import Id, Limit
from tidegate.engine.api.runs import Retried
from tidegate.engine.collection import Collection
from tidegate.engine.executions import Execution
from tidegate.engine.lifecycle import JobState
from tidegate.engine.reports.progress import JobDetail, JobView, job_of, jobs_of
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.storage.sql import Transaction

TAG = "jobs"


class JobFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    state: tuple[JobState, ...] = ()
    """Can be repeated."""
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Only jobs after this id."""
    limit: Limit = 100


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs, oldest first."""

    jobs: list[JobView]
    next: str | None
    """URL of the next page; null on the last page."""


class Executions(msgspec.Struct, frozen=True, kw_only=True):
    """The newest executions of a job, in order."""

    executions: list[Execution]
    """Empty until one has ended. Executions of crawls are recorded when they begin."""


class JobRoutes:
    """The handlers of the routes of jobs."""

    def __init__(self, collection: Collection) -> None:
        self._collection, self._database = collection, collection.parts.database

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of jobs."""
        return [
            route("GET", "/v1/runs/{run_id}/jobs", self.list_jobs, TAG),
            route("GET", "/v1/jobs/{job_id}", self.show_job, TAG),
            route("GET", "/v1/jobs/{job_id}/executions", self.list_executions, TAG),
            route(
                "POST",
                "/v1/jobs/{job_id}/retry",
                self.retry_job,
                TAG,
                problems=(ProblemType.CONFLICT, ProblemType.RUN_ACTIVE),
            ),
        ]

    async def list_jobs(self, run_id: Id, query: JobFilter) -> JobPage:
        """List the jobs of a run, oldest first. Each job is one upstream request."""
        read = partial(_page, run_id=run_id, states=query.state, after=query.after, limit=query.limit + 1)
        found = await self._database.read(read)
        jobs, more = found[: query.limit], found[query.limit :]
        return JobPage(jobs=jobs, next=_next(run_id, query, jobs[-1].id) if more else None)

    async def show_job(self, job_id: Id) -> JobDetail:
        """Show one job with its newest executions: the request of each, the status, the outcome and the next try."""
        return await self._database.read(job_of, job_id)

    async def list_executions(self, job_id: Id) -> Executions:
        """List the newest executions of a job, each with its request and its outcome."""
        return Executions(executions=await self._database.read(_executions, job_id))

    async def retry_job(self, job_id: Id) -> Retried:
        """Retry one failed job; its run becomes active again. 409 if the job has not failed."""
        run_id = await self._collection.run_of(job_id)
        orchestrator = await self._collection.orchestrator_of(run_id)
        if not await orchestrator.retry_job(job_id):
            raise RequestFailed(ProblemType.CONFLICT, f"the job {job_id} has not failed")
        return Retried(run_id=run_id, jobs=1)


def _page(tx: Transaction, run_id: int, **wanted: Any) -> list[JobView]:
    runs.get(tx, run_id)  # an unknown run is an error, a run without jobs is not
    return jobs_of(tx, run_id, **wanted)


def _executions(tx: Transaction, job_id: int) -> list[Execution]:
    if not job_store.runs_of(tx, [job_id]):
        raise NotFound("job", job_id)
    return executions.of_job(tx, job_id)


def _next(run_id: int, query: JobFilter, after: int) -> str:
    states = [("state", str(state)) for state in query.state]
    return f"/v1/runs/{run_id}/jobs?{urlencode([*states, ('after', after), ('limit', query.limit)])}"
