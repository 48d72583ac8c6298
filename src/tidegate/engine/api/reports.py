"""`/v1/reports`: reports for operators, one URL for each; `tidegate report` prints the same."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.engine.api.quotas import WaitingReport, waiting_report
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
from tidegate.http.dispatch import RequestInput
from tidegate.http.routes import route

TAG = "reports"

Hours = Annotated[int, Meta(ge=1, le=24 * 366)]
Rows = Annotated[int, Meta(ge=1, le=500)]
Seconds = Annotated[float, Meta(ge=0, le=366 * 86_400)]


class RunReportQuery(RequestInput, frozen=True, kw_only=True):
    """Period of the report."""

    hours: Hours | None = None
    """Include ended runs only if they ended in the last `hours`. Default: all."""


class KindReportQuery(RequestInput, frozen=True, kw_only=True):
    """Period and length of the report."""

    hours: Hours = 24
    """Include active runs, and runs that ended in the last `hours`."""
    limit: Rows = 20
    """Maximum number of kinds."""


class SlowReportQuery(RequestInput, frozen=True, kw_only=True):
    """Threshold and length of the report."""

    longer_than: Seconds = 600
    """Threshold in seconds."""
    limit: Rows = 20


class WaitingReportQuery(RequestInput, frozen=True, kw_only=True):
    """Length of the report."""

    limit: Rows = 20


class ReportRoutes:
    """The handlers of the routes under `/v1/reports`."""

    def __init__(self, collection: Collection) -> None:
        self._database, self._pools = collection.parts.database, collection

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of reports."""
        return [
            route("GET", "/v1/reports/runs", self.report_runs, TAG),
            route("GET", "/v1/reports/jobs", self.report_jobs, TAG),
            route("GET", "/v1/reports/failing", self.report_failing, TAG),
            route("GET", "/v1/reports/slow", self.report_slow, TAG),
            route("GET", "/v1/reports/waiting", self.report_waiting, TAG),
            route("GET", "/v1/reports/times", self.report_times, TAG),
            route("GET", "/v1/reports/retries", self.report_retries, TAG),
        ]

    async def report_runs(self, query: RunReportQuery) -> RunsReport:
        """Count runs by state."""
        since = None if query.hours is None else self._ago(query.hours)
        return await self._database.read(runs_by_state, since)

    async def report_jobs(self) -> JobsReport:
        """Count the jobs of active runs by source and state."""
        return await self._database.read(jobs_by_state)

    async def report_failing(self, query: KindReportQuery) -> FailingReport:
        """List the kinds of jobs that fail most, with the last error of each."""
        return await self._database.read(failing_kinds, self._ago(query.hours), query.limit)

    async def report_slow(self, query: SlowReportQuery) -> SlowReport:
        """List jobs that have been running for longer than a threshold."""
        return await self._database.read(slow_jobs, timedelta(seconds=query.longer_than), query.limit)

    async def report_waiting(self, query: WaitingReportQuery) -> WaitingReport:
        """Count the jobs that wait for a quota in each pool, with the reasons and when they can continue."""
        return await waiting_report(self._database, self._pools, query.limit)

    async def report_times(self, query: KindReportQuery) -> TimesReport:
        """Report the processing time of jobs by kind: median, 95th percentile and maximum."""
        return await self._database.read(processing_times, self._ago(query.hours), query.limit)

    async def report_retries(self, query: KindReportQuery) -> RetriesReport:
        """Report the number of retries by kind of job."""
        return await self._database.read(retry_counts, self._ago(query.hours), query.limit)

    def _ago(self, hours: int) -> datetime:
        return self._database.clock.now() - timedelta(hours=hours)
