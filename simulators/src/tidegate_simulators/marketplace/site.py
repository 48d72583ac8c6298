"""One host of the marketplace: a port, a robots.txt, a rate for everybody, and a book of manners."""

import asyncio
from collections.abc import Callable

from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.marketplace.book import MannersBook
from tidegate_simulators.marketplace.config import MarketplaceConfig, RobotsSettings
from tidegate_simulators.marketplace.ledger import Ledger
from tidegate_simulators.marketplace.rates import rate_of_host
from tidegate_simulators.marketplace.robots import Robots
from tidegate_simulators.wire.connection import Connection
from tidegate_simulators.wire.messages import Reply, Request, error

_BACKLOG = 1_024
_TEXT = b"Content-Type: text/plain; charset=utf-8\r\n"
Receive = Callable[["Site", Request, bytes], Reply]


class Site:
    """Listens, and hands every request on together with itself."""

    def __init__(self, number: int, config: MarketplaceConfig, ledger: Ledger, receive: Receive) -> None:
        self.number, self.name, self.manners, self.ledger = number, b"harbour", config.manners, ledger
        self._config, self._receive = config, receive
        self.robots = Robots(config.robots)
        self.rate = rate_of_host(config.limits)
        self.book = MannersBook(number, ledger, self.rate, config.politeness, config.arrivals_kept)
        self.connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen; from now on `url` is where."""
        host, port = self._config.host, self._config.port
        port = port + self.number if port else 0
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._connect, host, port, backlog=_BACKLOG)
        except OSError as error:
            raise InvalidArgument("port", port, f"cannot listen there on {host}: {error.strerror}") from None
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def stop(self) -> None:
        """Stop listening, and let go of everybody who still waits."""
        if self._server is not None:
            self._server.close()
            for connection in tuple(self.connections):
                connection.abort()
            await self._server.wait_closed()
            self._server = None

    def receive(self, request: Request, body: bytes) -> Reply:
        """Decide on the answer to a request that arrives now."""
        return self._receive(self, request, body)

    def set_robots(self, settings: RobotsSettings) -> None:
        """From now on it says something else."""
        self.robots = Robots(settings)

    def robots_reply(self) -> Reply:
        """robots.txt, or what comes instead."""
        status, text = self.robots.settings.status, self.robots.text
        if status != 200:
            return error(status, "robots", "There is no robots.txt here.")
        return Reply(200, [text], len(text), _TEXT)

    def _connect(self) -> Connection:
        self.ledger.connections += 1
        return Connection(self)
