"""The simulator as a server: in this process for tests and the demo, or in one of its own."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tidegate_simulators.admin import PREFIX
from tidegate_simulators.faults import Faults
from tidegate_simulators.http_server import Reply, Request
from tidegate_simulators.marketplace.admin import Admin
from tidegate_simulators.marketplace.answers import Answers
from tidegate_simulators.marketplace.config import FaultKind, MarketplaceConfig, Politeness, RobotsSettings, Route
from tidegate_simulators.marketplace.documents import Documents, ProductTruth
from tidegate_simulators.marketplace.identities import Callers, Identity
from tidegate_simulators.marketplace.ledger import IdentityReport, Ledger, Report
from tidegate_simulators.marketplace.request_handler import MarketplaceRequestHandler
from tidegate_simulators.marketplace.site import Site
from tidegate_simulators.marketplace.world import World
from tidegate_simulators.stalls import LoopMonitor
from tidegate_simulators.validation import require_positive, require_whole

_US = 1_000_000
_MOST_STEPS_TO_CATCH_UP = 1_000
"""Steps after a long idle time; each takes some milliseconds, in which no call is answered."""


class MarketplaceSimulator:
    """A marketplace of one's own: `async with MarketplaceSimulator(config) as sim: ... sim.urls ... sim.report()`."""

    def __init__(
        self, config: MarketplaceConfig | None = None, ticks_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.config = config or MarketplaceConfig()
        shape, behaviour = self.config.world, self.config.behaviour
        self.world = World(shape)
        self.documents = Documents(self.world)
        self.ledger = Ledger()
        self.faults = Faults[FaultKind, Route](shape.seed, behaviour.faults)
        self._callers = Callers(self.config)
        self._sites = [Site(number, self.config, self.ledger, self._receive) for number in range(shape.hosts)]
        self._handler = MarketplaceRequestHandler(
            self.config,
            Answers(self.world, self.documents, behaviour),
            callers=self._callers,
            faults=self.faults,
            ledger=self.ledger,
        )
        self._monitor = LoopMonitor(is_enabled=ticks_ns is time.monotonic_ns)
        self._admin = Admin(self)
        self._ticks_ns, self._started_ns = ticks_ns, ticks_ns()
        self._steps_by_clock = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; from now on `urls` is where."""
        try:
            for site in self._sites:
                await site.start()
        except BaseException:
            await self.stop()
            raise
        self._monitor.start()
        self.clear()

    async def stop(self) -> None:
        """Stop listening, and close all connections that still wait."""
        self._monitor.stop()
        for site in self._sites:
            await site.stop()

    @property
    def urls(self) -> list[str]:
        """Where each host is."""
        return [site.url for site in self._sites]

    @property
    def url(self) -> str:
        """Where the first one is."""
        return self._sites[0].url

    @property
    def identities(self) -> list[Identity]:
        """Those that are known from the start."""
        return self._callers.identities

    def truth(self, product: int) -> ProductTruth:
        """What a product is now, to compare a crawl with; `NotFound` if it is not for sale."""
        return self.documents.truth(self.world.require(product))

    def all_truth(self) -> dict[int, ProductTruth]:
        """Everything that is for sale now, by its id."""
        return {product.id: self.documents.truth(product) for product in self.world.products()}

    def set_robots(self, settings: RobotsSettings, host: int | None = None) -> None:
        """Change robots.txt of one host, or of all."""
        for site in self._chosen(host):
            site.set_robots(settings)

    def set_politeness(self, politeness: Politeness) -> None:
        """Hold crawlers to something else from now on."""
        for site in self._sites:
            site.book.politeness = politeness

    def ban(self, identity: str, *, host: int | None = None, for_s: float | None = None) -> None:
        """Ban an identity by name, from one host or from all."""
        if for_s is not None:
            require_positive("for_s", for_s)
        caller, at_us = self._callers.require(identity), self._now_us()
        for site in self._chosen(host):
            caller.rates[site.number].ban(at_us, None if for_s is None else round(for_s * _US))

    def pardon(self) -> None:
        """Forget all strikes, and end all bans."""
        for site in self._sites:
            site.rate.pardon()
        for caller in self._callers.all.values():
            for rate in caller.rates:
                rate.pardon()

    def arrivals(self, host: int = 0) -> list[int]:
        """When each call to a host came, in µs since the start."""
        return list(self._chosen(host)[0].book.arrivals)

    def report(self) -> Report:
        """Return what happened so far, and whether a rule was broken."""
        hosts = [site.book.report(site.url, site.robots) for site in self._sites]
        identities = [
            IdentityReport(
                name=caller.name,
                calls=caller.calls,
                refused=caller.refused,
                bans=sum(rate.bans for rate in caller.rates),
                most_at_once=caller.most_at_once,
            )
            for caller in self._callers.all.values()
            if caller.calls
        ]
        return self.ledger.report(hosts, identities, self.world.step, self._monitor.report())

    def clear(self) -> None:
        """Reset the counts; windows of limits, strikes, bans and pauses are kept."""
        self.ledger.clear()
        self._monitor.clear()
        for site in self._sites:
            site.book.clear()
        for caller in self._callers.all.values():
            caller.clear()

    def _now_us(self) -> int:
        return (self._ticks_ns() - self._started_ns) // 1_000

    def _receive(self, site: Site, request: Request, body: bytes) -> Reply:
        at_us = self._now_us()
        if self.config.world.steps_every_s is not None:
            self._step_by_clock(at_us, self.config.world.steps_every_s)
        if request.path.startswith(PREFIX):
            return self._admin.handle(request, body)
        return self._handler.receive(site, request, at_us, self._monitor.delay_us())

    def _step_by_clock(self, at_us: int, every_s: float) -> None:
        due = int(at_us / (every_s * _US))
        if due > self._steps_by_clock:
            self.world.advance(min(due - self._steps_by_clock, _MOST_STEPS_TO_CATCH_UP))
            self._steps_by_clock = due

    def _chosen(self, host: int | None) -> list[Site]:
        if host is None:
            return self._sites
        require_whole("host", host, least=0, most=len(self._sites) - 1)
        return [self._sites[host]]
