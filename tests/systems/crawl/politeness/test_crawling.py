"""Whole processes visit a marketplace, whose ledger judges every call by its own clock, without any leeway."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest

from tests.servers.migrated import migrated_file
from tests.servers.valkey import connected
from tests.systems.crawl.politeness.crawling import Crawler, crawlers
from tests.systems.crawl.politeness.harness import SMALL
from tidegate.engine.reports.progress import jobs_of
from tidegate.storage.valkey import Valkey
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate_simulators.marketplace import (
    Behaviour,
    FaultKind,
    LimitSettings,
    MarketplaceConfig,
    MarketplaceSimulator,
    PauseScope,
    Politeness,
    RobotsGroup,
    RobotsSettings,
    Route,
)

PAGES = [f"/search?q=word&page={n}" for n in range(1, 9)]
DONE = ("succeeded", None)


class Crawl(Protocol):
    async def __call__(
        self, config: MarketplaceConfig, crawl: CrawlSettings = ..., *, processes: int = ..., identities: int = ...
    ) -> tuple[MarketplaceSimulator, list[Crawler]]: ...


@pytest.fixture
async def crawl(tmp_path: Path, embedded: Valkey, embedded_url: str) -> AsyncGenerator[Crawl]:
    """Starts a marketplace, and processes that are ready to visit it."""
    del embedded  # it was emptied
    async with AsyncExitStack() as stack:

        async def start(
            config: MarketplaceConfig,
            crawl: CrawlSettings = CrawlSettings(delay=timedelta(0)),  # noqa: B008 - frozen
            *,
            processes: int = 1,
            identities: int = 3,
        ) -> tuple[MarketplaceSimulator, list[Crawler]]:
            url = await migrated_file(tmp_path / "tidegate.db")
            sim = await stack.enter_async_context(MarketplaceSimulator(config))
            valkeys = [await stack.enter_async_context(connected(embedded_url)) for _ in range(processes)]
            started = crawlers(tmp_path, url, valkeys, sim, crawl, identities)
            return sim, await stack.enter_async_context(started)

        yield start


def told(sim: MarketplaceSimulator) -> str:
    """Why somebody was found impolite."""
    report = sim.report()
    return f"{report.violations} {report.samples[:5]}"


async def test_two_processes_keep_the_crawl_delay_together_and_call_no_forbidden_path(crawl: Crawl):
    robots = RobotsSettings(groups=(RobotsGroup(crawl_delay_s=0.1),))
    config = MarketplaceConfig(world=SMALL, robots=robots, politeness=Politeness(delay_s=0.05))
    sim, (one, other) = await crawl(config, CrawlSettings(delay=timedelta(milliseconds=50)), processes=2)
    runs = [await one.begin(sim.url, PAGES[:4]), await other.begin(sim.url, [*PAGES[4:], "/cart/7"], user_id="bob")]
    first, second = [await one.ended(run) for run in runs]

    assert first == dict.fromkeys(PAGES[:4], DONE)
    state, why = second.pop("/cart/7")
    assert (state, second) == ("unavailable", dict.fromkeys(PAGES[4:], DONE))
    assert "robots.txt" in (why or "")
    report = sim.report()
    assert report.broken == 0, told(sim)
    assert report.by_route == {"robots": 1, "search": 8}
    assert report.smallest_gap_ms is not None
    assert report.smallest_gap_ms >= 100


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_path_forbidden_for_one_identity_is_fetched_by_another_and_withheld_if_forbidden_for_all(
    crawl: Crawl, processes: int
):
    groups = (
        RobotsGroup(agent="*", disallow=("/cart/",)),
        RobotsGroup(agent="Nightjar", disallow=("/cart/", "/search")),
        RobotsGroup(agent="Daybird", disallow=("/cart/", "/products/")),
    )
    config = MarketplaceConfig(
        world=SMALL, robots=RobotsSettings(groups=groups), limits=LimitSettings(per_identity=None)
    )
    sim, crawling = await crawl(config, processes=processes, identities=0)
    for name, agent in {"night": "Nightjar/1.0", "day": "Mozilla/5.0 (compatible; Daybird/2.0)"}.items():
        await crawling[0].book.add(name, {"User-Agent": agent})
    searches = [f"/search?q=word&page={n}" for n in range(1, 21)]
    details = [f"/products/{product.id}" for product in sim.world.products()][:10]
    run = await crawling[0].begin(sim.url, [*searches, *details, "/cart/7"])
    came = await crawling[0].ended(run)

    state, why = came.pop("/cart/7")
    assert (state, "forbids /cart/7" in (why or "")) == ("unavailable", True)
    assert came == dict.fromkeys([*searches, *details], DONE)
    report = sim.report()
    assert report.broken == 0, told(sim)
    assert report.calls == 30 + report.by_route["robots"]


@pytest.mark.parametrize("fault", [FaultKind.REFUSED, FaultKind.UNAVAILABLE])
async def test_a_retry_after_applies_to_all_identities(crawl: Crawl, fault: FaultKind):
    config = MarketplaceConfig(world=SMALL, politeness=Politeness(delay_s=0.01))
    sim, (crawler,) = await crawl(config, CrawlSettings(delay=timedelta(milliseconds=10)))
    sim.faults.inject_at(Route.SEARCH, fault)
    assert await crawler.ended(await crawler.begin(sim.url, PAGES)) == dict.fromkeys(PAGES, DONE)
    report = sim.report()
    assert report.broken == 0, told(sim)
    assert report.hosts[0].pauses_announced == 1
    assert report.calls == len(PAGES) + 2
    (host,) = await crawler.book.hosts.list()
    assert host.rests_until is not None
    assert "for 1 s" in (host.reason or "")


async def test_a_failing_robots_txt_delays_all_calls_temporarily(crawl: Crawl):
    behaviour = Behaviour(retry_after_s=1)
    config = MarketplaceConfig(world=SMALL, behaviour=behaviour, politeness=Politeness(delay_s=0.01))
    settings = CrawlSettings(delay=timedelta(milliseconds=10), robots_first_pause=timedelta(milliseconds=50))
    sim, (crawler,) = await crawl(config, settings)
    for fault in (FaultKind.SERVER_ERROR, FaultKind.RESET, FaultKind.REDIRECT):
        sim.faults.inject_at(Route.ROBOTS, fault)
    assert await crawler.ended(await crawler.begin(sim.url, PAGES)) == dict.fromkeys(PAGES, DONE)
    report = sim.report()
    assert report.broken == 0, told(sim)
    assert report.by_route == {"robots": 4, "search": 8}


async def test_a_retry_after_bound_to_the_identity_does_not_delay_other_identities(crawl: Crawl):
    limits = LimitSettings(per_identity=3, identity_window_s=1, strikes_until_ban=None)
    politeness = Politeness(pauses_bind=PauseScope.IDENTITY)
    config = MarketplaceConfig(world=SMALL, limits=limits, politeness=politeness)
    settings = CrawlSettings(delay=timedelta(0), retry_after_binds="identity")
    sim, (crawler,) = await crawl(config, settings)
    assert await crawler.ended(await crawler.begin(sim.url, PAGES)) == dict.fromkeys(PAGES, DONE)
    report = sim.report()
    assert report.broken == 0, told(sim)
    assert len(report.identities) == 3
    assert max(one.most_at_once for one in report.identities) == 1
    refused = {one.name for one in report.identities if one.refused}
    health = {one.name for one in await crawler.book.list() if one.health}
    assert health == refused


async def test_a_banned_identity_is_blocked_as_long_as_requested_and_another_does_its_work(crawl: Crawl):
    limits = LimitSettings(per_identity=4, identity_window_s=600, strikes_until_ban=1, ban_s=600)
    politeness = Politeness(pauses_bind=PauseScope.IDENTITY)
    config = MarketplaceConfig(world=SMALL, limits=limits, politeness=politeness)
    settings = CrawlSettings(delay=timedelta(0), retry_after_binds="identity")
    sim, (crawler,) = await crawl(config, settings, identities=4)
    assert await crawler.ended(await crawler.begin(sim.url, PAGES)) == dict.fromkeys(PAGES, DONE)
    assert sim.report().broken == 0, told(sim)


async def test_when_all_identities_are_banned_each_is_refused_once_and_no_attempt_is_counted(crawl: Crawl):
    politeness = Politeness(pauses_bind=PauseScope.IDENTITY)
    settings = CrawlSettings(delay=timedelta(0), retry_after_binds="identity")
    sim, (crawler,) = await crawl(MarketplaceConfig(world=SMALL, politeness=politeness), settings, identities=2)
    banned = [identity.name for identity in sim.identities[:2]]
    for name in banned:
        sim.ban(name, for_s=1)
    run = await crawler.begin(sim.url, PAGES)

    assert await crawler.ended(run) == dict.fromkeys(PAGES, DONE)
    report = sim.report()
    assert report.broken == 0, told(sim)
    refused = {one.name: one.refused for one in report.identities}
    assert refused.keys() == set(banned)
    # On a slow machine a ban ends before the first call of its identity.
    assert all(calls <= 1 for calls in refused.values()), "no storm"
    assert report.calls == sum(refused.values()) + 1 + len(PAGES)
    assert {job.attempts for job in await crawler.database.read(jobs_of, run)} == {1}


async def test_with_robots_txt_ignored_the_configured_delay_still_applies(crawl: Crawl):
    robots = RobotsSettings(groups=(RobotsGroup(disallow=("/search",), crawl_delay_s=30),))
    config = MarketplaceConfig(
        world=SMALL,
        robots=RobotsSettings(),
        politeness=Politeness(delay_s=0.05, robots_required=False),
    )
    sim, (crawler,) = await crawl(config, CrawlSettings(delay=timedelta(milliseconds=50)))
    run = await crawler.begin(sim.url, PAGES[:4], ignore_robots=True)
    assert await crawler.ended(run) == dict.fromkeys(PAGES[:4], DONE)
    assert sim.report().broken == 0, told(sim)
    assert sim.report().by_route == {"search": 4}

    sim.set_robots(robots)
    run = await crawler.begin(sim.url, PAGES[:2], user_id="bob", ignore_robots=True)
    assert await crawler.ended(run) == dict.fromkeys(PAGES[:2], DONE), "forbidden, and called all the same"
    assert set(sim.report().violations) <= {"disallowed", "too_soon"}
