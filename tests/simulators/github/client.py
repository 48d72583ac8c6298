"""A plain client: no retries, no cleverness, nothing followed unless asked."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy

from tidegate.core.clock import ManualClock
from tidegate_simulators.github import Behaviour, GithubSimulator, LimitSettings, SimulatorConfig, Sizes, WorldShape

SMALL = Sizes(issues=7, pulls=5, commits=9, issue_comments=11, review_comments=4, reviews=6)


@dataclass(frozen=True)
class Got:
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def remaining(self) -> int:
        return int(self.headers["x-ratelimit-remaining"])

    @property
    def links(self) -> dict[str, str]:
        links: dict[str, str] = {}
        for part in filter(None, self.headers.get("link", "").split(", ")):
            url, _, relation = part.partition("; ")
            links[relation.removeprefix('rel="').removesuffix('"')] = url.strip("<>")
        return links


class Client:
    def __init__(self, sim: GithubSimulator, clock: ManualClock, session: aiohttp.ClientSession) -> None:
        self.sim, self.clock, self._session = sim, clock, session
        self.login = sim.world.logins()[0]
        self.token: str | None = sim.token_of(self.login)

    async def ask(self, method: str, url: str, *, token: str | None = None, **options: Any) -> Got:
        secret = self.token if token is None else token
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        headers |= options.pop("headers", {})
        full = url if url.startswith("http") else self.sim.url + url
        async with self._session.request(method, full, headers=headers, allow_redirects=False, **options) as answer:
            return Got(answer.status, answer.headers, await answer.read())

    async def get(self, url: str, *, token: str | None = None, **headers: str) -> Got:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("GET", url, token=token, headers=named)

    async def all(self, url: str) -> list[Any]:
        """Every item of a list, page by page."""
        items: list[Any] = []
        following: str | None = url
        while following:
            got = await self.get(following)
            assert got.status == 200, got.body
            items += got.json
            following = got.links.get("next")
        return items

    async def query(self, text: str, **variables: Any) -> Got:
        return await self.ask("POST", "/graphql", json={"query": text, "variables": variables})

    def repo(self, index: int = 0) -> str:
        account = self.sim.world.require_account(self.login)
        return self.sim.world.repositories_of(account)[index].full_name


@asynccontextmanager
async def simulated(
    *,
    users: int = 1,
    repositories: int | None = 1,
    sizes: Sizes | None = SMALL,
    events: int | None = None,
    quirks: bool = False,
    discussions: int = 0,
    limits: LimitSettings | None = None,
    behaviour: Behaviour | None = None,
) -> AsyncGenerator[Client]:
    """A simulator with one small repository unless told otherwise, its clock, and a client of its first user."""
    clock = ManualClock()
    config = SimulatorConfig(
        world=WorldShape(
            users=users,
            repositories=repositories,
            sizes=sizes,
            events=events,
            quirks=quirks,
            discussions=discussions,
        ),
        limits=limits or LimitSettings(),
        behaviour=behaviour or Behaviour(error_pause_s=0, hang_s=0, drip_s=0),
    )
    agent = {"User-Agent": "tests"}
    async with GithubSimulator(config, clock) as sim, aiohttp.ClientSession(headers=agent) as session:
        # Unasked, it would send a GET again whose connection broke: a second call that nobody decided on.
        session._retry_connection = False  # pyright: ignore[reportPrivateUsage]
        yield Client(sim, clock, session)
