"""The dashboard's topic of the crawl: active crawls, pages, kept answers, hosts and identities."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from litestar.handlers import HTTPRouteHandler
from sqlalchemy import func, select

from tidegate.engine.reports.overview import newest_active
from tidegate.engine.reports.progress import kinds_of
from tidegate.engine.runs import Run
from tidegate.http.routes import route
from tidegate.runtime.partial_reads import DATABASE, PartialReads, UnreadPart
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl import hosts
from tidegate.systems.crawl.api.crawls import CrawledHost
from tidegate.systems.crawl.hosts import Host
from tidegate.systems.crawl.identities import Identity, listed
from tidegate.systems.crawl.raw_states import RawState
from tidegate.systems.crawl.source import CrawlSource
from tidegate.systems.crawl.tables import crawl_raws

_MOST_ACTIVE = 20
_MOST_HOSTS = 50
_MOST_COUNTED = 10_000
_LATELY = timedelta(hours=24)
_raw = crawl_raws.c


class PageCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of the crawls that are shown, by state."""

    waiting: int
    running: int
    retrying: int
    succeeded: int
    unavailable: int
    """The site does not show them, or robots.txt forbids them."""
    failed: int
    canceled: int


class RawCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Kept answers by state; ten thousand of each are counted at most."""

    pending: int
    failed: int
    """Dead letters."""
    processed_day: int
    """Within the last 24 hours."""


class HostsView(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that crawls have met."""

    total: int
    resting: list[CrawledHost]
    """Those that are not called now, and why; fifty at most, the longest first."""


class IdentityCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of crawl identities in each state."""

    enabled: int
    disabled: int
    resting: int
    """Enabled identities that a host refused a while ago, and that rest there."""


class CrawlOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The crawl at a glance. What could not be found out is null, and `unknown` says why."""

    at: datetime
    active: list[Run] | None
    """Crawls that are not over, the newest first, twenty at most."""
    pages: PageCounts | None
    raws: RawCounts | None
    hosts: HostsView | None
    identities: IdentityCounts | None
    unknown: list[UnreadPart]


class CrawlReader:
    """Reads the overview. What cannot be read in time is null in it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The address of the overview."""
        return [route("GET", "/v1/crawl/overview", self.show_crawl_overview, "crawl")]

    async def show_crawl_overview(self) -> CrawlOverview:
        """Show the crawl at a glance: active crawls, what became of the pages, which hosts and identities rest."""
        return await self.read()

    async def read(self) -> CrawlOverview:
        """Read the current state of the crawl; a field that cannot be read in time is null."""
        reads, read = PartialReads(), self._database.read
        crawls, raws, known, identities = await asyncio.gather(
            reads.read(DATABASE, read(_crawls), "active", "pages"),
            reads.read(DATABASE, read(_raws), "raws"),
            reads.read(DATABASE, read(hosts.everything), "hosts"),
            reads.read(DATABASE, read(listed), "identities"),
        )
        now = self._database.clock.now()
        return CrawlOverview(
            at=now,
            active=None if crawls is None else crawls[0],
            pages=None if crawls is None else crawls[1],
            raws=raws,
            hosts=None if known is None else _hosts(known, now),
            identities=None if identities is None else _identities(identities, now),
            unknown=reads.unknown,
        )


def _crawls(tx: Transaction) -> tuple[list[Run], PageCounts]:
    active = newest_active(tx, _MOST_ACTIVE, source=CrawlSource.name)
    kinds = kinds_of(tx, [run.id for run in active]) if active else []
    fields = PageCounts.__struct_fields__
    return active, PageCounts(**{name: sum(getattr(kind, name) for kind in kinds) for name in fields})


def _raws(tx: Transaction) -> RawCounts:
    def count(state: RawState, since: datetime | None = None) -> int:
        those = select(_raw.id).where(_raw.state == state)
        if since is not None:
            those = those.where(_raw.not_before >= since)
        return tx.execute(select(func.count()).select_from(those.limit(_MOST_COUNTED).subquery())).scalar_one()

    return RawCounts(
        pending=count(RawState.PENDING),
        failed=count(RawState.FAILED),
        # By when it was to be tried, of which there is an index; that is when it was, or shortly before.
        processed_day=count(RawState.PROCESSED, tx.now - _LATELY),
    )


def _hosts(known: Sequence[Host], now: datetime) -> HostsView:
    resting = [host for host in known if host.rests_until is not None and host.rests_until > now]
    resting.sort(key=lambda host: (host.rests_until, host.host), reverse=True)
    return HostsView(total=len(known), resting=[CrawledHost.of(host) for host in resting[:_MOST_HOSTS]])


def _identities(identities: Sequence[Identity], now: datetime) -> IdentityCounts:
    enabled = [one for one in identities if one.enabled]
    resting = [one for one in enabled if any(each.resting_until and each.resting_until > now for each in one.health)]
    return IdentityCounts(enabled=len(enabled), disabled=len(identities) - len(enabled), resting=len(resting))
