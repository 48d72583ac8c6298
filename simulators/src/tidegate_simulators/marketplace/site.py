"""One host of the marketplace: a port, a robots.txt, limits, and a record of violations."""

from collections.abc import Callable

from aiohttp import web

from tidegate_simulators.http_server import HttpServer, Reply, Request, error, read_request
from tidegate_simulators.marketplace.config import MarketplaceConfig, RobotsSettings
from tidegate_simulators.marketplace.ledger import Ledger
from tidegate_simulators.marketplace.politeness_record import PolitenessRecord
from tidegate_simulators.marketplace.rates import rate_of_host
from tidegate_simulators.marketplace.robots import Robots

_TEXT = {"Content-Type": "text/plain; charset=utf-8"}
Receive = Callable[["Site", Request, bytes], Reply]


class Site:
    """A listening server that passes each request on, together with itself."""

    def __init__(self, number: int, config: MarketplaceConfig, ledger: Ledger, receive: Receive) -> None:
        self.number = number
        self._config, self._receive = config, receive
        self.robots = Robots(config.robots)
        self.rate = rate_of_host(config.limits)
        self.book = PolitenessRecord(number, ledger, self.rate, config.politeness, config.arrivals_kept)
        self._server = HttpServer(self._handle, name="harbour", timing=config.behaviour, traffic=ledger)

    async def start(self) -> None:
        """Listen; from now on `url` is where."""
        port = self._config.port + self.number if self._config.port else 0
        await self._server.start(self._config.host, port)

    async def stop(self) -> None:
        """Stop listening, and break the connections of requests that are not answered yet."""
        await self._server.stop()

    @property
    def url(self) -> str:
        """The address at which the host listens."""
        return self._server.url

    def set_robots(self, settings: RobotsSettings) -> None:
        """From now on it says something else."""
        self.robots = Robots(settings)

    def robots_reply(self) -> Reply:
        """robots.txt, or what comes instead."""
        status, text = self.robots.settings.status, self.robots.text
        if status != 200:
            return error(status, "robots", "There is no robots.txt here.")
        return Reply(200, text, _TEXT)

    async def _handle(self, request: web.BaseRequest) -> Reply:
        return self._receive(self, *await read_request(request))
