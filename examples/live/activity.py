"""The activity of the demo, all of it over HTTP: runs, readers, visitors, a promotion, a crawl."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from examples.live.upstreams import BROKEN_CHARACTER, GARBLED_CHARACTER, Upstreams

ROOM, CRAWL = "spring-sale", "daily"
_RUNS_AT_ONCE = 3
_CHARACTERS = 400
_COUPONS = 2_000


class Api:
    """Asks the deployment."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status, and the decoded body."""
        options: dict[str, Any] = {"headers": headers}
        if method != "GET":
            options["json"] = {} if body is None else body
        async with self._session.request(method, self._url + path, **options) as answer:
            return answer.status, await answer.json(content_type=None)

    async def until_over(self, run_id: int) -> None:
        """Follow a run to its end; the stream closes with it."""
        async with self._session.get(f"{self._url}/v1/runs/{run_id}/events") as answer:
            async for _ in answer.content:
                pass


class Activity:
    """The simulated users."""

    def __init__(self, api: Api, upstreams: Upstreams, seed: int = 1) -> None:
        self._api, self._upstreams = api, upstreams
        self._random = random.Random(seed)

    async def prepare(self) -> None:
        """What an operator sets up once."""
        simulator = self._upstreams.github
        for owner in simulator.world.operators():
            token = {"token": simulator.token_of(owner), "name": owner}
            await self._require("POST", "/v1/credentials", token)
        plan = {"capacity": 40, "admit_per_second": 4, "session_s": 12, "anonymous": True, "title": "Spring sale"}
        await self._require("POST", "/v1/rooms", {"name": ROOM, "plan": plan})
        await self._require("POST", f"/v1/rooms/{ROOM}/open")
        nightly = {"login": simulator.world.logins()[0], "cron": "0 3 * * *"}
        await self._require("POST", "/v1/schedules", nightly)

    async def go_on(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            logins = itertools.cycle(self._upstreams.github.world.logins())
            for _ in range(_RUNS_AT_ONCE):
                group.create_task(self._collect(logins))
            for each in (self._read, self._queue_up, self._promote, self._crawl):
                group.create_task(each())

    async def _collect(self, logins: "itertools.cycle[str]") -> None:
        while True:
            # A full run each time: an incremental run costs almost nothing, and nothing would wait.
            status, run = await self._api.ask("POST", "/v1/runs", {"login": next(logins), "full": True})
            await (self._api.until_over(run["id"]) if status == 201 else asyncio.sleep(1))

    async def _read(self) -> None:
        async def read() -> None:
            subject = min(self._random.randint(1, _CHARACTERS), self._random.randint(1, _CHARACTERS))
            await self._api.ask("GET", f"/v1/snapshots/character/{subject}")

        for subject in (BROKEN_CHARACTER, GARBLED_CHARACTER):
            await self._api.ask("GET", f"/v1/snapshots/character/{subject}")
        await self._now_and_then(15, read)

    async def _queue_up(self) -> None:
        people = itertools.count(1)

        async def come() -> None:
            await self._api.ask("POST", f"/v1/rooms/{ROOM}/entries", {"user": f"visitor-{next(people)}"})

        await self._now_and_then(5, come)

    async def _promote(self) -> None:
        """One promotion after the other."""
        for number in itertools.count(1):
            campaign = {"id": f"coupons-{number}", "kind": "FIRST_COME", "total_count": _COUPONS}
            await self._require("POST", "/v1/campaigns", {**campaign, "title": f"Coupons for the first {_COUPONS:,}"})
            await self._require("POST", f"/v1/campaigns/{campaign['id']}/start")
            place, users = f"/v1/campaigns/{campaign['id']}/entries", itertools.count(1)
            while (user := next(users)) <= _COUPONS:
                await self._api.ask("POST", place, {"user": f"user-{user}"})
                await asyncio.sleep(self._random.expovariate(8))

    async def _crawl(self) -> None:
        market = self._upstreams.market
        for url in itertools.cycle(market.urls):
            crawl = {"name": CRAWL, "url": url, "keywords": list(market.world.keywords)}
            status, run = await self._api.ask("POST", "/v1/crawl/runs", crawl)
            if status == 201:
                await self._api.until_over(run["id"])
            await asyncio.sleep(3)

    async def _now_and_then(self, per_second: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await act()
            await asyncio.sleep(self._random.expovariate(per_second))

    async def _require(self, method: str, path: str, body: Any = None) -> Any:
        status, said = await self._api.ask(method, path, body)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {said}")
        return said
