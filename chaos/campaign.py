"""The campaign: all users are collected while workers are killed continuously and every server fails once."""

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from tests.servers.proxy import Proxy
from tests.servers.sql import sql_server

from chaos.comparison import documents_of
from chaos.deployment import Servers, Site, open_site
from chaos.fleet import ForkServerClient
from chaos.outcome import Outcome, examine
from chaos.servers import LosableValkey
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.runtime.waiting import end
from tidegate.systems.github import CONVERSATIONS
from tidegate_simulators.github import KINDS, Behaviour, GithubSimulator, SimulatorConfig, Sizes, WorldShape

_OPERATORS, _AT_ONCE = 2, 12
_REPOSITORIES, _EVENTS = 30, 130
_SIZES = Sizes(issues=10, pulls=5, commits=101, issue_comments=12, review_comments=3, reviews=4)
"""Lists of one or two pages: many calls, so that each can be short compared with the life of a worker."""
_AWAY_S = 2.0
"""How long the database is away."""
_LATENCY_MS = 300
"""Of an answer, for a campaign of one minute. Most of the time is spent on waiting for the leases of the dead."""
_LOSSES = (0.2, 0.4, 0.6)
"""Which share of the calls has been made when Valkey is flushed, Valkey restarts, and the database is cut off."""


class Backend(StrEnum):
    """Where the truth is kept."""

    POSTGRES = "postgres"
    SQLITE = "sqlite"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a campaign."""

    backend: Backend
    seed: int = 1
    documents: int = 20_000
    """At least so many."""
    minutes: float = 1.0
    """About how long it takes on two idle cores: answers are as slow as that needs."""
    workers: int = 4
    kill_every_s: float = 2.0
    most_kills: int | None = None
    """None: until all users are collected."""
    lease_s: float | None = None
    """How long a process may be silent; None: as long as it may by default."""

    @property
    def settings(self) -> dict[str, Any]:
        """Of the workers."""
        lease_s = self.lease_s
        return {} if lease_s is None else {"membership": {"lease": lease_s, "renew_every": 0.7 * lease_s}}

    @property
    def longest_s(self) -> float:
        """After this it has failed."""
        return 120 + 6 * 60 * self.minutes


Tell = Callable[[str], object]


class Campaign:
    """One run of it."""

    def __init__(self, plan: Plan, site: Site, tell: Tell, *, lose: "Losses") -> None:
        self._plan, self._site, self._lose = plan, site, lose
        self._random = random.Random(plan.seed)
        self._began = time.monotonic()
        self._say = tell
        self._needed = site.github.perfect_calls(None, KINDS).total
        self._run_ids: list[int] = []
        self.kills = 0

    async def run(self) -> Outcome:
        """Begin everybody's run, do the worst, and look at what came of it."""
        site, plan = self._site, self._plan
        for _ in range(plan.workers):
            await site.start()
        self._run_ids = await site.begin(*site.logins)
        self._tell(f"{len(site.logins)} users, {plan.workers} workers, {self._needed} calls needed")
        doing = [asyncio.create_task(work) for work in (self._kill(), self._lose_servers(), self._watch())]
        try:
            await site.until_over(self._run_ids, within_s=plan.longest_s)
            is_over = True
        except TimeoutError:
            is_over = False
        took_s = time.monotonic() - self._began
        await end(*doing)
        await self._lose.mend()
        self._tell("all runs are over; verifying the results" if is_over else "not over in time")
        exit_codes = await site.stopped()
        return await examine(
            site,
            self._run_ids,
            name=f"{plan.backend}, seed {plan.seed}",
            took_s=took_s,
            kills=self.kills,
            losses=self._lose.done,
            exit_codes=exit_codes,
        )

    async def _kill(self) -> None:
        """Kill one, replace it and those that could not start for want of a server, and so on."""
        while True:
            await asyncio.sleep(self._plan.kill_every_s)
            alive = self._site.fleet.alive
            if alive and (self._plan.most_kills is None or self.kills < self._plan.most_kills):
                victim = self._random.choice(alive)
                victim.kill()
                await victim.ends()
                self.kills += 1
            while len(self._site.fleet.alive) < self._plan.workers:
                await self._site.start()

    async def _lose_servers(self) -> None:
        for share, lose in zip(_LOSSES, self._lose.each, strict=True):
            await self._site.github.until_arrived(int(share * self._needed), within_s=self._plan.longest_s)
            self._tell(await lose())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(5)
            runs = [await self._site.orchestrator.show(run_id) for run_id in self._run_ids]
            over = sum(run.status not in ACTIVE_RUNS for run in runs)
            pages = f"{sum(run.ended_jobs for run in runs)}/{sum(run.total_jobs for run in runs)}"
            calls = self._site.github.arrived
            self._tell(f"{over}/{len(runs)} users, {pages} pages, {calls} calls, {self.kills} workers killed")

    def _tell(self, what: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} s  {what}")


class Losses:
    """What can be lost, each once; `done` tells what was."""

    def __init__(
        self, valkey: LosableValkey, cut_off: Callable[[], Awaitable[str]], mend: Callable[[], Awaitable[None]]
    ):
        self._valkey = valkey
        self.mend = mend
        self.each: tuple[Callable[[], Awaitable[str]], ...] = (self._flush, self._restart, cut_off)
        self.done: list[str] = []

    async def _flush(self) -> str:
        await asyncio.to_thread(self._valkey.flush)
        return self._note("Valkey was flushed")

    async def _restart(self) -> str:
        await asyncio.to_thread(self._valkey.restart)
        return self._note("Valkey was killed, and started again")

    def _note(self, what: str) -> str:
        self.done.append(what)
        return what


async def conduct(plan: Plan, fork_server: ForkServerClient, folder: Path, tell: Tell) -> Outcome:
    """A whole campaign, on servers of its own."""
    world = _world(plan)
    with LosableValkey(keeps=True) as valkey:
        async with _database(plan.backend, valkey, folder) as (servers, losses):
            opening = open_site(
                fork_server,
                folder,
                servers,
                _config(plan, world),
                settings=plan.settings,
                limits={"concurrency": _AT_ONCE},
                include=CONVERSATIONS,
            )
            async with opening as site:
                return await Campaign(plan, site, tell, lose=losses).run()


def _world(plan: Plan) -> WorldShape:
    """The smallest one of this seed that has enough in it."""
    found, users = 0, 0
    while True:
        users += 1
        world = WorldShape(seed=plan.seed, users=users, operators=_OPERATORS, repositories=_REPOSITORIES, sizes=_SIZES)
        github = GithubSimulator(SimulatorConfig(world=world))
        found += documents_of(github.truth(github.world.logins()[-1]))
        if found >= plan.documents:
            return world


def _config(plan: Plan, world: WorldShape) -> SimulatorConfig:
    """Limits as GitHub has them, and answers as slow as the plan wants."""
    return SimulatorConfig(world=world, behaviour=Behaviour(latency_ms=_LATENCY_MS * plan.minutes))


@asynccontextmanager
async def _database(backend: Backend, valkey: LosableValkey, folder: Path) -> AsyncGenerator[tuple[Servers, Losses]]:
    if backend is Backend.SQLITE:
        yield Servers(valkey_url=valkey.url), _with_locked_file(valkey, folder / "tidegate.db")
        return
    server = sql_server("postgres")
    async with server.database() as name, Proxy(server.port) as wire:
        there = server.url(name, port=wire.port)
        servers = Servers(valkey_url=valkey.url, database_url=server.url(name), database_for_workers=there)
        yield servers, _with_cut_wire(valkey, wire)


def _with_cut_wire(valkey: LosableValkey, wire: Proxy) -> Losses:
    is_cut = False

    async def mend() -> None:
        nonlocal is_cut
        if is_cut:
            is_cut = False
            await wire.listen()

    async def cut_off() -> str:
        nonlocal is_cut
        is_cut = True
        await wire.refuse()
        await asyncio.sleep(_AWAY_S)
        await mend()
        losses.done.append("PostgreSQL was cut off")
        return f"PostgreSQL was cut off for {_AWAY_S:.0f} s"

    losses = Losses(valkey, cut_off, mend)
    return losses


def _with_locked_file(valkey: LosableValkey, path: Path) -> Losses:
    """SQLite has no connection to cut; the file is locked instead."""
    locks: list[sqlite3.Connection] = []

    async def mend() -> None:
        while locks:
            locks.pop().close()

    def lock() -> None:
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN IMMEDIATE")
        locks.append(connection)

    async def cut_off() -> str:
        await asyncio.to_thread(lock)
        await asyncio.sleep(_AWAY_S)
        await mend()
        losses.done.append("SQLite was locked")
        return f"the SQLite file was locked for {_AWAY_S:.0f} s"

    losses = Losses(valkey, cut_off, mend)
    return losses
