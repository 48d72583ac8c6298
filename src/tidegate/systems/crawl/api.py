"""Routes of `/v1/crawl`: crawls and their schedules, hosts, identities, products and stored answers.

The runs of crawls are in `/v1/runs`. Headers of identities are never returned. Stored answers that could not be applied
(dead letters) can be replayed.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import NotFound
from tidegate.engine.api.run_details import Id, Limit
from tidegate.engine.runs import Run
from tidegate.engine.schedules.store import Schedule
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.systems.crawl.crawls import Crawls
from tidegate.systems.crawl.hosts import Host
from tidegate.systems.crawl.identities import Identity, IdentityRegistry
from tidegate.systems.crawl.opening import OpenCrawl
from tidegate.systems.crawl.products import MOST_AT_ONCE, Product, Products
from tidegate.systems.crawl.raws import Raw, Raws, RawState
from tidegate.systems.crawl.source import CrawlSource
from tidegate.systems.crawl.tables import LONGEST_HOST, LONGEST_PRODUCT, LONGEST_SITE
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


IdentityName = Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9_.-]+$")]


class IdentityHeaders(RequestInput, frozen=True, kw_only=True):
    """The headers that an identity sends with every call."""

    headers: Annotated[dict[str, str], Meta(min_length=1, extra_json_schema={"format": "headers"})]
    """Must include User-Agent. Stored encrypted and never shown."""


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """All identities, ordered by name."""

    identities: list[Identity]


class IdentityRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """Confirms that an identity was removed."""

    name: str
    outcome: Literal["removed"] = "removed"


class IdentityRoutes:
    """Handlers of the identity routes."""

    def __init__(self, identities: IdentityRegistry) -> None:
        self._identities = identities

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of identities."""
        place = "/v1/crawl/identities/{name}"
        return [
            route("GET", "/v1/crawl/identities", self.list_identities, TAG),
            route("GET", place, self.show_identity, TAG),
            route("PUT", place, self.put_identity, TAG),
            route("DELETE", place, self.remove_identity, TAG),
            route("POST", f"{place}/enable", self.enable_identity, TAG),
            route("POST", f"{place}/disable", self.disable_identity, TAG),
        ]

    async def list_identities(self) -> Identities:
        """List identities, with their health at hosts that refused them."""
        return Identities(identities=list(await self._identities.list()))

    async def show_identity(self, name: IdentityName) -> Identity:
        """Show one identity with its health."""
        return await self._identities.get(name)

    async def put_identity(self, name: IdentityName, body: IdentityHeaders) -> Identity:
        """Add an identity, or replace the headers of an existing one."""
        return await self._identities.add(name, body.headers)

    async def remove_identity(self, name: IdentityName) -> IdentityRemoved:
        """Delete an identity. Calls in progress finish."""
        await self._identities.remove(name)
        return IdentityRemoved(name=name)

    async def enable_identity(self, name: IdentityName) -> Identity:
        """Enable an identity, so that it is used again."""
        await self._identities.enable(name)
        return await self._identities.get(name)

    async def disable_identity(self, name: IdentityName) -> Identity:
        """Disable an identity: it is kept, but not used."""
        await self._identities.disable(name)
        return await self._identities.get(name)


ProductId = Annotated[str, Meta(min_length=1, max_length=LONGEST_PRODUCT, pattern=r"^[!-.0-~]+$")]
PageSize = Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)]


class ProductFilter(RequestInput, frozen=True, kw_only=True):
    """Query parameters of the list of products."""

    host: HostName | None = None
    shop: ProductId | None = None
    gone: bool | None = None
    """true: only products that no crawl lists any more; false: only the others."""
    after: Annotated[str, Meta(max_length=500, pattern=r"^[!-.0-~]+/[!-.0-~]+$")] | None = None
    """Only products after this one, in the form `host/product`."""
    limit: PageSize = 100


class ProductsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of products, ordered by host and id."""

    products: list[Product]
    next: str | None
    """The address of the next page; null where there is none."""


class RawFilter(RequestInput, frozen=True, kw_only=True):
    """Query parameters of the list of stored answers."""

    state: RawState | None = None
    run: Id | None = None
    host: HostName | None = None
    product: ProductId | None = None
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Only answers with a greater number."""
    limit: PageSize = 100


class RawsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of stored answers without their bodies, oldest first."""

    raws: list[Raw]
    next: str | None
    """The address of the next page; null where there is none."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying a dead letter."""

    id: int
    outcome: Literal["replayed"] = "replayed"


class ReplayedAll(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying all dead letters."""

    replayed: int
    refused: list[str]
    """Dead letters that could not be replayed, with the reason: their crawl has another active run."""


class ProductRoutes:
    """Handlers of the routes of products and stored answers."""

    def __init__(self, products: Products, raws: Raws, crawls: Crawls) -> None:
        self._products, self._raws, self._crawls = products, raws, crawls

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of products and stored answers."""
        return [
            route("GET", "/v1/crawl/products", self.list_products, TAG),
            route("GET", "/v1/crawl/products/{host}/{product_id}", self.show_product, TAG),
            route("GET", "/v1/crawl/raws", self.list_raws, TAG),
            route("GET", "/v1/crawl/raws/{raw_id}", self.show_raw, TAG),
            route("POST", "/v1/crawl/raws/{raw_id}/replay", self.replay_raw, TAG),
            route("POST", "/v1/crawl/dead/replay", self.replay_dead_raws, TAG),
        ]

    async def list_products(self, query: ProductFilter) -> ProductsPage:
        """List products in their last known state."""
        page = await self._products.page(
            host=query.host, shop_id=query.shop, is_gone=query.gone, after=query.after, limit=query.limit
        )
        asked = {"host": query.host, "shop": query.shop, "gone": query.gone, "limit": query.limit}
        return ProductsPage(products=page.products, next=_next("/v1/crawl/products", asked, page.next_after))

    async def show_product(self, host: HostName, product_id: ProductId) -> Product:
        """Show one product with all its data."""
        return await self._products.get(host, product_id)

    async def list_raws(self, query: RawFilter) -> RawsPage:
        """List stored answers: pending, applied and failed ones (`state=failed`), with reasons."""
        page = await self._raws.page(
            state=query.state,
            run_id=query.run,
            host=query.host,
            product_id=query.product,
            after=query.after,
            limit=query.limit,
        )
        asked = {
            "state": query.state,
            "run": query.run,
            "host": query.host,
            "product": query.product,
            "limit": query.limit,
        }
        return RawsPage(raws=page.raws, next=_next("/v1/crawl/raws", asked, page.next_after))

    async def show_raw(self, raw_id: Id) -> Raw:
        """Show one stored answer, without its body."""
        return await self._raws.get(raw_id)

    async def replay_raw(self, raw_id: Id) -> Replayed:
        """Replay one dead letter."""
        if not await self._crawls.replay_one(raw_id):
            raise NotFound("dead letter", raw_id)
        return Replayed(id=raw_id)

    async def replay_dead_raws(self) -> ReplayedAll:
        """Replay all dead letters."""
        came = await self._crawls.replay()
        return ReplayedAll(replayed=came.replayed, refused=came.refused)


def _next(place: str, asked: Mapping[str, Any], after: object) -> str | None:
    if after is None:
        return None
    given = {name: _text(value) for name, value in asked.items() if value is not None}
    return f"{place}?{urlencode(given | {'after': str(after)})}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
