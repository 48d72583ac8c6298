"""Routes of `/v1/crawl`: start and schedule crawls, and list their hosts. Their runs are in `/v1/runs`."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import NotFound
from tidegate.engine.api.run_details import Limit
from tidegate.engine.runs import Run
from tidegate.engine.schedules.store import Schedule
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.systems.crawl.hosts import Host
from tidegate.systems.crawl.opening import OpenCrawl
from tidegate.systems.crawl.source import CrawlSource
from tidegate.systems.crawl.tables import LONGEST_HOST, LONGEST_SITE
from tidegate.systems.crawl.targets import MOST_KEYWORDS, MOST_PAGES, CrawlOptions

TAG = "crawl"

Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.-]+$")]
HostName = Annotated[str, Meta(min_length=1, max_length=LONGEST_HOST, pattern=r"^[!-.0-~]+$")]
Keyword = Annotated[str, Meta(min_length=1, max_length=200, extra_json_schema={"format": "keyword"})]


class NewCrawl(RequestInput, frozen=True, kw_only=True):
    """The body of a request to start a crawl."""

    name: Name
    """Name of the crawl. It has at most one active run."""
    url: Annotated[str, Meta(max_length=2_000, extra_json_schema={"format": "site"}, examples=["https://shop.example"])]
    """Scheme and host of the marketplace."""
    keywords: Annotated[list[Keyword], Meta(min_length=1, max_length=MOST_KEYWORDS)]
    site: Annotated[str, Meta(min_length=1, max_length=LONGEST_SITE, extra_json_schema={"format": "site-name"})] = (
        "marketplace"
    )
    """The site class that reads its pages: marketplace, or one from `crawl.sites`."""
    pages: Annotated[int, Meta(ge=1, le=MOST_PAGES)] = 100
    """Maximum number of pages read per search."""
    ignore_robots: bool = False
    """Request pages that robots.txt forbids, and ignore its Crawl-delay."""

    @property
    def options(self) -> CrawlOptions:
        """The options of the crawl; raises `InvalidArgument`."""
        return CrawlOptions(
            url=self.url,
            keywords=list(dict.fromkeys(self.keywords)),
            site=self.site,
            pages=self.pages,
            ignore_robots=self.ignore_robots,
        )


class NewCrawlSchedule(NewCrawl, frozen=True, kw_only=True):
    """The body of a request to schedule a crawl."""

    cron: Annotated[str, Meta(max_length=100, examples=["0 3 * * *"], extra_json_schema={"format": "cron"})]
    """Minute, hour, day of month, month, day of week."""
    timezone: Annotated[
        str, Meta(max_length=64, examples=["UTC", "Europe/Berlin"], extra_json_schema={"format": "time-zone"})
    ] = "UTC"
    """The time zone of the cron expression."""


class CrawlScheduleFilter(RequestInput, frozen=True, kw_only=True):
    """Query parameters of the list of schedules."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Only schedules with a greater number: the last number of the previous page."""
    limit: Limit = 100


class CrawlSchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of crawl schedules, ordered by number."""

    schedules: list[Schedule]


class CrawledHost(msgspec.Struct, frozen=True, kw_only=True):
    """A crawled host, and what its robots.txt requires."""

    host: str
    robots: str
    """The state of its robots.txt."""
    read_at: datetime | None
    """When robots.txt was read."""
    crawl_delay_ms: int
    """The longest Crawl-delay that applies to any identity."""
    rests_until: datetime | None
    """The host is not called before this time."""
    reason: str | None

    @classmethod
    def of(cls, host: Host) -> "CrawledHost":
        """Convert a host, without the text of its robots.txt."""
        return cls(
            host=host.host,
            robots=host.robots_state,
            read_at=host.read_at,
            crawl_delay_ms=host.crawl_delay_ms,
            rests_until=host.rests_until,
            reason=host.reason,
        )


class CrawledHosts(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts of crawls."""

    hosts: list[CrawledHost]


class CrawlRoutes:
    """Handlers of the crawl routes."""

    def __init__(self, crawl: OpenCrawl) -> None:
        self._crawls, self._schedules = crawl.crawls, crawl.cell.schedules
        self._orchestrator, self._hosts = crawl.cell.orchestrator, crawl.identities.hosts

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of crawls, their schedules and hosts."""
        of_run, of_schedule = {"Location": "The address of the run."}, {"Location": "The address of the schedule."}
        in_the_way = (ProblemType.RUN_ACTIVE, ProblemType.NO_CREDENTIAL)
        return [
            route("POST", "/v1/crawl/runs", self.begin_crawl, TAG, status=201, headers=of_run, problems=in_the_way),
            route("GET", "/v1/crawl/schedules", self.list_crawl_schedules, TAG),
            route("POST", "/v1/crawl/schedules", self.schedule_crawl, TAG, status=201, headers=of_schedule),
            route("GET", "/v1/crawl/hosts", self.list_crawled_hosts, TAG),
            route("POST", "/v1/crawl/hosts/{host}/reread", self.reread_robots, TAG),
        ]

    async def begin_crawl(self, body: NewCrawl) -> Response[Run]:
        """Start a crawl. Its run is in `/v1/runs`."""
        with _site_is_known():
            run_id = await self._crawls.begin(body.name, body.options)
        return Response(await self._orchestrator.show(run_id), headers={"Location": f"/v1/runs/{run_id}"})

    async def list_crawl_schedules(self, query: CrawlScheduleFilter) -> CrawlSchedulePage:
        """List the schedules of crawls, with the next due time and the result of the last one."""
        found = await self._schedules.list_schedules(source=CrawlSource.name, after=query.after, limit=query.limit)
        return CrawlSchedulePage(schedules=found)

    async def schedule_crawl(self, body: NewCrawlSchedule) -> Response[Schedule]:
        """Schedule a crawl.

        A schedule with the same name, cron expression and time zone gets the new options.
        """
        with _site_is_known():
            added = await self._crawls.schedule(body.name, body.options, cron=body.cron, timezone=body.timezone)
        return Response(added, headers={"Location": f"/v1/schedules/{added.id}"})

    async def list_crawled_hosts(self) -> CrawledHosts:
        """List the hosts of crawls, with their robots.txt rules and pauses."""
        return CrawledHosts(hosts=[CrawledHost.of(host) for host in await self._hosts.list()])

    async def reread_robots(self, host: HostName) -> CrawledHost:
        """Read the robots.txt of a host again before its next page. A pause that it asked for continues."""
        await self._hosts.forget(host)
        return CrawledHost.of(await self._hosts.get(host))


@contextmanager
def _site_is_known() -> Generator[None]:
    """Report an unknown site as an invalid value (422) and not as 404."""
    try:
        yield
    except NotFound as error:
        raise RequestFailed(ProblemType.INVALID, str(error), field="site") from None
