"""The dashboard topic of the crawl: active crawls, pages, stored answers, hosts and identities."""

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
from tidegate.runtime.waiting import DATABASE, PartialReads, UnreadPart
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl import hosts
from tidegate.systems.crawl.api import CrawledHost
from tidegate.systems.crawl.hosts import Host
from tidegate.systems.crawl.identities import Identity, listed
from tidegate.systems.crawl.source import CrawlSource
from tidegate.systems.crawl.stages import RawState
from tidegate.systems.crawl.tables import crawl_raws

_MOST_ACTIVE = 20
_MOST_HOSTS = 50
_MOST_COUNTED = 10_000
_LATELY = timedelta(hours=24)
_raw = crawl_raws.c


class PageCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of pages of active crawls, by state."""

    waiting: int
    running: int
    retrying: int
    succeeded: int
    unavailable: int
    """Pages that the site withholds, or robots.txt forbids."""
    failed: int
    canceled: int


class RawCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of stored answers by state, at most ten thousand of each."""

    pending: int
    failed: int
    """Number of dead letters."""
    processed_day: int
    """Processed within the last 24 hours."""


class HostsView(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the hosts of crawls."""

    total: int
    resting: list[CrawledHost]
    """Paused hosts with reasons, at most fifty, longest pause first."""


class IdentityCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of identities by state."""

    enabled: int
    disabled: int
    resting: int
    """Enabled identities that are paused at a host that refused them."""


class CrawlOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The overview of crawls. Parts that could not be read are null; `unknown` has the reasons."""

    at: datetime
    active: list[Run] | None
    """Active crawls, newest first, at most twenty."""
    pages: PageCounts | None
    raws: RawCounts | None
    hosts: HostsView | None
    identities: IdentityCounts | None
    unknown: list[UnreadPart]


class CrawlReader:
    """Reads the overview. Parts that cannot be read in time are null."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The route of the overview."""
        return [route("GET", "/v1/crawl/overview", self.show_crawl_overview, "crawl")]

    async def show_crawl_overview(self) -> CrawlOverview:
        """Show the overview of crawls: active crawls, pages by outcome, paused hosts and identities."""
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
        # Filtered by the indexed time of the attempt, which is at most shortly before the time of processing.
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
