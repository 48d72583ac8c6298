"""`/v1/crawl`: begin crawls, by hand or by the clock, and look at the hosts they call. Their runs are in `/v1/runs`."""

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
    """What is crawled."""

    name: Name
    """What you call this crawl; it has one run at a time."""
    url: Annotated[str, Meta(max_length=2_000, extra_json_schema={"format": "site"}, examples=["https://shop.example"])]
    """Scheme and host of the marketplace."""
    keywords: Annotated[list[Keyword], Meta(min_length=1, max_length=MOST_KEYWORDS)]
    site: Annotated[str, Meta(min_length=1, max_length=LONGEST_SITE, extra_json_schema={"format": "site-name"})] = (
        "marketplace"
    )
    """How its pages are read: marketplace, or a site of your own (`crawl.sites`)."""
    pages: Annotated[int, Meta(ge=1, le=MOST_PAGES)] = 100
    """How many pages of each search are read at most."""
    ignore_robots: bool = False
    """Ask for pages although robots.txt forbids them, and do not heed its Crawl-delay."""

    @property
    def options(self) -> CrawlOptions:
        """As crawls understand it; raises `InvalidArgument`."""
        return CrawlOptions(
            url=self.url,
            keywords=list(dict.fromkeys(self.keywords)),
            site=self.site,
            pages=self.pages,
            ignore_robots=self.ignore_robots,
        )


class NewCrawlSchedule(NewCrawl, frozen=True, kw_only=True):
    """What is crawled, and when."""

    cron: Annotated[str, Meta(max_length=100, examples=["0 3 * * *"], extra_json_schema={"format": "cron"})]
    """Minute, hour, day of month, month, day of week."""
    timezone: Annotated[
        str, Meta(max_length=64, examples=["UTC", "Europe/Berlin"], extra_json_schema={"format": "time-zone"})
    ] = "UTC"
    """By whose clocks."""


class CrawlScheduleFilter(RequestInput, frozen=True, kw_only=True):
    """Which schedules, and how many."""

    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Only those with a greater number: the last one of the page before."""
    limit: Limit = 100


class CrawlSchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules of crawls in the order of their numbers."""

    schedules: list[Schedule]


class CrawledHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is called, and how it wants to be."""

    host: str
    robots: str
    """What became of its robots.txt."""
    read_at: datetime | None
    """When that was read."""
    crawl_delay_ms: int
    """The longest that it asks any of our identities for."""
    rests_until: datetime | None
    """Nobody calls it before."""
    reason: str | None

    @classmethod
    def of(cls, host: Host) -> "CrawledHost":
        """Without the text of its robots.txt."""
        return cls(
            host=host.host,
            robots=host.robots_state,
            read_at=host.read_at,
            crawl_delay_ms=host.crawl_delay_ms,
            rests_until=host.rests_until,
            reason=host.reason,
        )


class CrawledHosts(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts that crawls have met."""

    hosts: list[CrawledHost]


class CrawlRoutes:
    """The handlers."""

    def __init__(self, crawl: OpenCrawl) -> None:
        self._crawls, self._schedules = crawl.crawls, crawl.cell.schedules
        self._orchestrator, self._hosts = crawl.cell.orchestrator, crawl.identities.hosts

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with crawls."""
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
        """Begin a crawl. Its run is at /v1/runs, as every run."""
        with _site_is_known():
            run_id = await self._crawls.begin(body.name, body.options)
        return Response(await self._orchestrator.show(run_id), headers={"Location": f"/v1/runs/{run_id}"})

    async def list_crawl_schedules(self, query: CrawlScheduleFilter) -> CrawlSchedulePage:
        """List the schedules of crawls: when they are due next, and what their last due time brought."""
        found = await self._schedules.list_schedules(source=CrawlSource.name, after=query.after, limit=query.limit)
        return CrawlSchedulePage(schedules=found)

    async def schedule_crawl(self, body: NewCrawlSchedule) -> Response[Schedule]:
        """Begin a crawl whenever the time has come.

        The same name, cron and time zone again change the options of the schedule that is there, and nothing else.
        """
        with _site_is_known():
            added = await self._crawls.schedule(body.name, body.options, cron=body.cron, timezone=body.timezone)
        return Response(added, headers={"Location": f"/v1/schedules/{added.id}"})

    async def list_crawled_hosts(self) -> CrawledHosts:
        """List the hosts that crawls have met: what their robots.txt asks for, and which of them rest."""
        return CrawledHosts(hosts=[CrawledHost.of(host) for host in await self._hosts.list()])

    async def reread_robots(self, host: HostName) -> CrawledHost:
        """Have the robots.txt of a host read anew before its next page. A rest that it asked for goes on."""
        await self._hosts.forget(host)
        return CrawledHost.of(await self._hosts.get(host))


@contextmanager
def _site_is_known() -> Generator[None]:
    """A site that there is not is a value that cannot be used; nothing has it as its address."""
    try:
        yield
    except NotFound as error:
        raise RequestFailed(ProblemType.INVALID, str(error), field="site") from None
