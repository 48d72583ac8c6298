"""A plain client of a small simulated marketplace whose time stands still: no retries, no redirects, no manners."""

import html
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from tests.simulators.ticks import Ticks
from tidegate_simulators.marketplace import (
    Behaviour,
    LimitSettings,
    MarketplaceConfig,
    MarketplaceSimulator,
    Politeness,
    RobotsSettings,
    WorldShape,
)

SMALL = WorldShape(products=60, keywords=3, per_page=8, products_per_shop=5)
FREE = LimitSettings(per_identity=None)
LAX = Politeness(robots_required=False)
"""For tests that are not about robots.txt."""
_CARD = re.compile(
    r'data-product-id="(\d+)" data-shop-id="(\d+)".*?__name">(.*?)</div>.*?data-cents="(\d+)"', re.DOTALL
)


@dataclass(frozen=True)
class Got:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def cards(self) -> list[tuple[int, int, str, int]]:
        """What a listing shows: product, shop, name, price."""
        found = _CARD.findall(self.text)
        return [(int(product), int(shop), html.unescape(name), int(price)) for product, shop, name, price in found]

    @property
    def following(self) -> str | None:
        """The next page, if there is one."""
        link = re.search(r'rel="next" href="(.*?)"', self.text)
        return None if link is None else html.unescape(link[1])


class Client:
    def __init__(self, sim: MarketplaceSimulator, ticks: Ticks, session: aiohttp.ClientSession) -> None:
        self.sim, self.ticks, self._session = sim, ticks, session

    async def get(
        self, path: str, *, host: int = 0, who: int | str = 0, method: str = "GET", **headers: str | None
    ) -> Got:
        """As one of the known identities, or as whoever has this User-Agent."""
        known = {"User-Agent": who} if isinstance(who, str) else self.sim.identities[who].headers
        named = known | {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        url = URL(self.sim.urls[host] + path, encoded=True)
        async with self._session.request(method, url, headers=named, allow_redirects=False) as answer:
            return Got(answer.status, answer.headers, await answer.read())

    async def post(self, path: str, **content: Any) -> Got:
        async with self._session.post(self.sim.url + path, json=content) as answer:
            return Got(answer.status, answer.headers, await answer.read())

    async def statuses(self, times: int, path: str = "/", *, host: int = 0, who: int | str = 0) -> list[int]:
        return [(await self.get(path, host=host, who=who)).status for _ in range(times)]

    def violations(self, host: int = 0) -> dict[str, int]:
        return self.sim.report().hosts[host].violations


@asynccontextmanager
async def simulated(
    *,
    world: WorldShape = SMALL,
    limits: LimitSettings = FREE,
    robots: RobotsSettings | None = None,
    politeness: Politeness = LAX,
    behaviour: Behaviour | None = None,
    only_known: bool = False,
) -> AsyncGenerator[Client]:
    ticks = Ticks()
    config = MarketplaceConfig(
        world=world,
        limits=limits,
        robots=robots or RobotsSettings(),
        politeness=politeness,
        behaviour=behaviour or Behaviour(hang_s=0, drip_s=0),
        identities=4,
        only_known=only_known,
    )
    async with (
        MarketplaceSimulator(config, ticks) as sim,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        # Unasked, it would send a GET again whose connection broke: a second call that nobody decided on.
        session._retry_connection = False  # pyright: ignore[reportPrivateUsage]
        yield Client(sim, ticks, session)
