"""An installation that crawls a marketplace, for tests of politeness: hosts, identities, the gate, the caller."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from tests.simulators.ticks import Ticks
from tidegate.connections import build_context
from tidegate.core.clock import ManualClock
from tidegate.engine.credentials.opening import open_vault
from tidegate.engine.upstream import Answer, UpstreamClient, UpstreamSettings
from tidegate.primitives.gate import Gate, Job
from tidegate.primitives.gate.model import CredentialStatus, PaceStatus
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.system import Context
from tidegate.systems.crawl.hosts import Host, host_of
from tidegate.systems.crawl.identities import IdentityRegistry
from tidegate.systems.crawl.identity_records import credential_of
from tidegate.systems.crawl.politeness import PoliteCaller, PoliteRequest
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate_simulators.marketplace import MarketplaceConfig, MarketplaceSimulator, WorldShape

SMALL = WorldShape(products=12, keywords=2, per_page=4, products_per_shop=4)
LOCAL = UpstreamSettings(private_hosts=("127.0.0.1",))
"""The simulators are on this machine."""
POLITE = CrawlSettings(delay=timedelta(0))


class PolitenessHarness:
    """One process's view. The clock of rows and scripts, and that of the simulator, are moved together by hand."""

    def __init__(
        self,
        settings: Settings,
        parts: Context,
        sim: MarketplaceSimulator,
        client: UpstreamClient,
        *,
        clock: ManualClock,
        ticks: Ticks,
    ) -> None:
        self.settings, self.parts, self.sim, self.client = settings, parts, sim, client
        self.clock, self.ticks = clock, ticks
        self.database, self.crawl = parts.database, settings.section(CrawlSettings)
        keys = parts.jobs.keys
        self.gate = Gate(
            parts.valkey,
            parts.unit,
            stream=keys.stream,
            group=parts.jobs.settings.group,
            wake=parts.timers.keys.wake,
            clock=clock,
        )
        self.vault = open_vault(settings, parts.database)
        self.book = IdentityRegistry(parts.database, self.gate, self.vault, settings.section(CrawlSettings))
        self.caller = PoliteCaller(client, self.book.hosts)
        self.host = host_of(sim.url)

    def again(self, **changes: object) -> "PolitenessHarness":
        """The same installation as another process sees it."""
        settings = self.settings.model_copy(update={"crawl": self.crawl.model_copy(update=changes)})
        return PolitenessHarness(settings, self.parts, self.sim, self.client, clock=self.clock, ticks=self.ticks)

    def advance(self, by: timedelta) -> None:
        self.clock.advance(by)
        self.ticks.advance(by.total_seconds())

    async def call(
        self, path: str = "/search?q=none", *, identity: str = "tidegate", ignores_robots: bool = False
    ) -> Answer:
        """A call by an identity, with whatever the caller does before it."""
        headers = msgspec.json.decode(await self.book.secret_of(credential_of(identity)), type=dict[str, str])
        return await self.call_with(headers, path, ignores_robots=ignores_robots)

    async def call_with(self, headers: Mapping[str, str], path: str, *, ignores_robots: bool = False) -> Answer:
        return await self.caller.fetch(
            PoliteRequest(
                url=self.sim.url + path,
                purpose="crawl.test",
                headers=headers,
                ignores_robots=ignores_robots,
            )
        )

    async def stored(self) -> Host:
        return await self.book.hosts.get(self.host)

    async def members(self) -> dict[str, CredentialStatus]:
        return {one.name: one for one in (await self.gate.status("crawl")).credentials}

    async def pace(self) -> PaceStatus:
        """What the gate knows; it tells only of hosts that somebody waits for or has called, so somebody does."""
        await self.gate.enqueue([Job(job=f"waits-{n}", pool="crawl", run="1", bucket=self.host) for n in range(50)])
        paces = (await self.gate.status("crawl")).paces
        return next(one for one in paces if one.bucket == self.host)


@asynccontextmanager
async def harness_at(
    folder: Path, valkey: Valkey, database: Database, config: MarketplaceConfig, crawl: CrawlSettings = POLITE
) -> AsyncGenerator[PolitenessHarness]:
    """A visit to a marketplace whose clock stands still, as does that of `database`."""
    clock, ticks = database.clock, Ticks()
    assert isinstance(clock, ManualClock)
    async with MarketplaceSimulator(config, ticks) as sim, UpstreamClient(LOCAL, clock=clock) as client:
        settings = Settings(data_dir=folder, crawl=crawl)
        yield PolitenessHarness(
            settings, build_context(settings, valkey, database), sim, client, clock=clock, ticks=ticks
        )
