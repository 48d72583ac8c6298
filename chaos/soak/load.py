"""Load on all systems over HTTP, as users generate it, and a record of the answers."""

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import aiohttp

from chaos.soak.deployment import SUBJECTS, Deployment, Member

ROOM, CAPACITY, SESSION_S = "soak", 30, 4
STOCK, ENTRANTS = 300, 400
CRAWL = "market"
PASS, KEY = "Tidegate-Pass", "Idempotency-Key"
_RETRY_S = 0.5
_TIMEOUT = aiohttp.ClientTimeout(total=30)
_RUN_ENDED = ("completed", "failed", "canceled")


class Api:
    """Sends requests to whichever member is up."""

    def __init__(self, session: aiohttp.ClientSession, deployment: Deployment, draw: random.Random) -> None:
        self._session, self._deployment, self._random = session, deployment, draw

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        member: Member | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and body of one request; status 0 where no answer came."""
        chosen = member or self._random.choice(self._deployment.members)
        options: dict[str, Any] = {"headers": headers or {}}
        if method in ("POST", "PUT"):
            options["json"] = {} if body is None else body
        try:
            async with self._session.request(method, chosen.url + path, timeout=_TIMEOUT, **options) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return 0, None

    async def until(
        self,
        accepted: tuple[int, ...],
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Repeat a request until its status is one of `accepted`; the body of that answer."""
        while True:
            status, said = await self.ask(method, path, body, headers=headers)
            if status in accepted:
                return said
            await asyncio.sleep(_RETRY_S)


class Load:
    """Everything that runs until `stopping` is set; tasks then finish what they have begun."""

    def __init__(self, api: Api, deployment: Deployment, seed: int) -> None:
        self._api, self._deployment = api, deployment
        self._random = random.Random(seed)
        self.stopping = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.breaches: list[str] = []
        self.run_ids: list[int] = []
        self.campaigns: list[str] = []
        self.accepted: defaultdict[str, dict[str, datetime]] = defaultdict(dict)
        """By campaign: users whose entry was accepted, and when they first sent it."""
        self.lost: defaultdict[str, set[str]] = defaultdict(set)
        """Of these: users whose entry was unknown later, and for whom nothing was left when they entered again."""
        self.joined_at: dict[str, datetime] = {}
        """When each visitor of the room was given a place."""
        self._versions: dict[tuple[int, int, int], int] = {}

    async def prepare(self) -> None:
        """What an operator sets up once."""
        simulator = self._deployment.upstreams.github
        for owner in simulator.world.operators():
            token = {"token": simulator.token_of(owner), "name": owner}
            await self._api.until((201, 409), "POST", "/v1/credentials", token)
        plan = {"capacity": CAPACITY, "session_s": SESSION_S, "title": "Soak"}
        await self._api.until((201, 409), "POST", "/v1/rooms", {"name": ROOM, "plan": plan})
        await self._api.until((200,), "POST", f"/v1/rooms/{ROOM}/open")

    async def run(self) -> None:
        """All systems at once, until stopped and finished."""
        logins = itertools.cycle(self._deployment.upstreams.github.world.logins())
        urls = itertools.cycle(self._deployment.upstreams.market.urls)
        numbers = itertools.count(1)
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(self._repeat(lambda: self.collect(next(logins))))
            for _ in range(4):
                group.create_task(self._repeat(lambda: self.read(self._random.randint(1, SUBJECTS))))
            group.create_task(self._spawn(group, numbers, 4, self.visit))
            group.create_task(self._repeat(lambda: self.promote(next(numbers))))
            group.create_task(self._repeat(lambda: self.crawl(next(urls)), pause_s=5))

    async def _repeat(self, act: Callable[[], Awaitable[None]], pause_s: float = 0.1) -> None:
        while not self.stopping.is_set():
            await act()
            await asyncio.sleep(pause_s * (0.5 + self._random.random()))

    async def _spawn(
        self, group: asyncio.TaskGroup, numbers: "itertools.count[int]", per_s: float, act: Callable[[int], Any]
    ) -> None:
        while not self.stopping.is_set():
            group.create_task(act(next(numbers)))
            await asyncio.sleep(self._random.expovariate(per_s))

    async def collect(self, login: str) -> None:
        """One run of a user, to its end. A user with an active run is skipped."""
        status, run = await self._api.ask("POST", "/v1/runs", {"login": login})
        if status != 201:
            return
        self.run_ids.append(run["id"])
        await self._until_run_ended(run["id"])
        self.counts["collection runs"] += 1

    async def _until_run_ended(self, run_id: int) -> None:
        while True:
            status, run = await self._api.ask("GET", f"/v1/runs/{run_id}")
            if status == 200 and run["status"] in _RUN_ENDED:
                return
            await asyncio.sleep(_RETRY_S)

    async def read(self, subject: int) -> None:
        """Read a snapshot: it is the subject's own, and a process never shows an older version than before."""
        member = self._random.choice(self._deployment.members)
        incarnation = member.incarnation
        status, view = await self._api.ask("GET", f"/v1/snapshots/character/{subject}", member=member)
        if status != 200 or incarnation != member.incarnation:
            return
        self.counts["snapshot reads"] += 1
        if (snapshot := view["snapshot"]) is None:
            return
        if snapshot["id"] != subject:
            self._breach(f"snapshot of {subject} shows {snapshot['id']}")
        whose, version = (member.number, incarnation, subject), snapshot["version"]
        if version < (before := self._versions.get(whose, 0)):
            self._breach(f"snapshot {subject} went back from version {before} to {version} on member {member.number}")
        self._versions[whose] = version

    async def visit(self, number: int) -> None:
        """Join the line, follow the place with the pass, and leave or stay until the session ends."""
        user = f"visitor-{number}"
        place = await self._api.until((200,), "POST", f"/v1/rooms/{ROOM}/entries", {"user": user})
        self.joined_at[user] = datetime.now(UTC)
        token, was_inside = place["pass"], False
        while True:
            status, place = await self._api.ask("GET", f"/v1/rooms/{ROOM}/place", headers={PASS: token})
            if status == 200:
                token = place["pass"] or token
                if place["state"] == "inside" and not was_inside:
                    was_inside = True
                    self.counts["admissions"] += 1
                    if self._random.random() < 0.3:
                        await self._api.ask("DELETE", f"/v1/rooms/{ROOM}/place", headers={PASS: token})
                if place["state"] == "nowhere":
                    if was_inside:
                        return
                    # Admitted and expired between two requests, or forgotten by a server that lost its data.
                    place = await self._api.until((200,), "POST", f"/v1/rooms/{ROOM}/entries", {"user": user})
                    if place["state"] == "nowhere" or place["pass"] is None:
                        return
                    token = place["pass"]
            elif status == 403:  # the pass has expired: the session was over long ago
                return
            await asyncio.sleep(1 + self._random.random())

    async def promote(self, number: int) -> None:
        """One campaign: more users than coupons, each tries until there is an answer, with one idempotency key."""
        name = f"coupons-{number}"
        campaign = {"id": name, "kind": "FIRST_COME", "total_count": STOCK}
        await self._api.until((201, 409), "POST", "/v1/campaigns", campaign)
        await self._api.until((200,), "POST", f"/v1/campaigns/{name}/start")
        self.campaigns.append(name)
        users = [f"user-{n}" for n in range(ENTRANTS)]
        for start in range(0, len(users), 20):
            await asyncio.gather(*(self._enter(name, user) for user in users[start : start + 20]))
        for user in sorted(self.accepted[name]):
            await self._until_decided(name, user)
        self.counts["campaigns"] += 1

    async def _enter(self, name: str, user: str) -> str:
        sent_at = datetime.now(UTC)
        entry = await self._api.until(
            (200, 202, 409), "POST", f"/v1/campaigns/{name}/entries", {"user": user}, headers={KEY: f"{name}-{user}"}
        )
        if entry["answer"] == "ACCEPTED":
            self.accepted[name].setdefault(user, sent_at)
        return entry["answer"]

    async def _until_decided(self, name: str, user: str) -> None:
        while True:
            status, result = await self._api.ask("GET", f"/v1/campaigns/{name}/entries/{user}")
            if status == 200 and result["state"] not in ("pending", "unknown"):
                return
            # A flush loses entries that were accepted and not decided yet: their users enter again.
            if status == 200 and result["state"] == "unknown" and await self._enter(name, user) == "SOLD_OUT":
                self.lost[name].add(user)
                return
            await asyncio.sleep(_RETRY_S)

    async def crawl(self, url: str) -> None:
        """One crawl of a host, to its end."""
        market = self._deployment.upstreams.market
        crawl = {"name": CRAWL, "url": url, "keywords": list(market.world.keywords)}
        status, run = await self._api.ask("POST", "/v1/crawl/runs", crawl)
        if status == 201:
            await self._until_run_ended(run["id"])
            self.counts["crawl runs"] += 1

    def _breach(self, what: str) -> None:
        if len(self.breaches) < 50:
            self.breaches.append(what)
