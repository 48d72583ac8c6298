"""`/v1/reports`: what operators ask, each question under its own address; `tidegate report` prints the same."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.engine.api.waiting_pools import WaitingReport, waiting_report
from tidegate.engine.collection import Collection
from tidegate.engine.reports.kinds import (
    FailingReport,
    RetriesReport,
    TimesReport,
    failing_kinds,
    processing_times,
    retry_counts,
)
from tidegate.engine.reports.states import JobsReport, RunsReport, SlowReport, jobs_by_state, runs_by_state, slow_jobs
from tidegate.http.dispatch import Given
from tidegate.http.routes import route

TAG = "reports"

Hours = Annotated[int, Meta(ge=1, le=24 * 366)]
Rows = Annotated[int, Meta(ge=1, le=500)]
Seconds = Annotated[float, Meta(ge=0, le=366 * 86_400)]


class Ended(Given, frozen=True, kw_only=True):
    """How far back."""

    hours: Hours | None = None
    """Of the runs that are over, only those that ended in the last hours, so many; all where it is left out."""


class Lately(Given, frozen=True, kw_only=True):
    """How far back, and how many."""

    hours: Hours = 24
    """Runs that are not over, and those that ended in the last hours, so many."""
    limit: Rows = 20
    """Kinds at most."""


class TooLong(Given, frozen=True, kw_only=True):
    """How long is too long, and how many."""

    longer_than: Seconds = 600
    """Seconds."""
    limit: Rows = 20


class Most(Given, frozen=True, kw_only=True):
    """How many."""

    limit: Rows = 20


class Reports:
    """The handlers."""

    def __init__(self, collection: Collection) -> None:
        self._database, self._pools = collection.parts.database, collection

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be asked."""
        return [
            route("GET", "/v1/reports/runs", self.report_runs, TAG),
            route("GET", "/v1/reports/jobs", self.report_jobs, TAG),
            route("GET", "/v1/reports/failing", self.report_failing, TAG),
            route("GET", "/v1/reports/slow", self.report_slow, TAG),
            route("GET", "/v1/reports/waiting", self.report_waiting, TAG),
            route("GET", "/v1/reports/times", self.report_times, TAG),
            route("GET", "/v1/reports/retries", self.report_retries, TAG),
        ]

    async def report_runs(self, query: Ended) -> RunsReport:
        """Count runs by state."""
        since = None if query.hours is None else self._ago(query.hours)
        return await self._database.read(runs_by_state, since)

    async def report_jobs(self) -> JobsReport:
        """Count the jobs of runs that are not over, by source and state."""
        return await self._database.read(jobs_by_state)

    async def report_failing(self, query: Lately) -> FailingReport:
        """Tell which kinds of jobs fail most, and why the last one did."""
        return await self._database.read(failing_kinds, self._ago(query.hours), query.limit)

    async def report_slow(self, query: TooLong) -> SlowReport:
        """Tell which jobs have been running too long."""
        return await self._database.read(slow_jobs, timedelta(seconds=query.longer_than), query.limit)

    async def report_waiting(self, query: Most) -> WaitingReport:
        """Tell how many jobs wait for a quota in each pool, why, and until when."""
        return await waiting_report(self._database, self._pools, query.limit)

    async def report_times(self, query: Lately) -> TimesReport:
        """Tell how long jobs take by kind: half of them, 95 of 100, and the slowest."""
        return await self._database.read(processing_times, self._ago(query.hours), query.limit)

    async def report_retries(self, query: Lately) -> RetriesReport:
        """Tell how often jobs are tried again by kind."""
        return await self._database.read(retry_counts, self._ago(query.hours), query.limit)

    def _ago(self, hours: int) -> datetime:
        return self._database.clock.now() - timedelta(hours=hours)
