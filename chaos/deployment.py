"""One deployment under observation: a simulated GitHub, servers, workers, and a driver that begins runs and looks."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import func, select

from chaos import audit
from chaos.comparison import Comparison, compare, disagreements
from chaos.fleet import Fleet, ForkServerClient, Worker
from chaos.github import WatchedGithub
from chaos.messages import Order
from chaos.worker import WORKING
from tidegate.engine.lifecycle import ACTIVE_RUNS, JobState
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import SourceCell
from tidegate.engine.tables import page_jobs
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction, outbox
from tidegate.systems.github import ESSENTIAL
from tidegate.systems.github.kinds import DOCUMENTS, REPOSITORY, USER
from tidegate.systems.github.opening import open_github
from tidegate.systems.github.settings import POOL, GithubSettings
from tidegate_simulators.github import SimulatorConfig

_LOOK_EVERY_S = 0.02


class Servers(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of a campaign; workers may reach them through proxies that can be cut."""

    valkey_url: str | None
    """None: the embedded server of the folder."""
    database_url: str | None = None
    """None: SQLite in the folder of the site."""
    documents_url: str | None = None
    valkey_for_workers: str | None = None
    database_for_workers: str | None = None
    documents_for_workers: str | None = None


class Site:
    """What tests and campaigns do with a deployment."""

    def __init__(self, github: WatchedGithub, collection: SourceCell, fleet: Fleet, order: Order) -> None:
        self.github, self.collection, self.fleet = github, collection, fleet
        self.parts, self.documents = collection.parts, collection.documents.of("github")
        self.orchestrator = collection.orchestrator
        self._order = order

    @property
    def logins(self) -> list[str]:
        """All users that can be collected."""
        return list(self.github.world.logins())

    async def start(self, *, die_at: str = "", begin: str = "", **changes: Any) -> Worker:
        """A new worker process."""
        return await self.fleet.start(msgspec.structs.replace(self._order, die_at=die_at, begin=begin, **changes))

    async def working(self) -> Worker:
        """A new worker process that takes jobs by now."""
        worker = await self.start()
        await worker.says(WORKING)
        return worker

    async def begin(self, *logins: str) -> list[int]:
        """Begin a run for each."""
        return [
            await self.orchestrator.begin("github", Subject(user_id=login, login=login), pool=POOL) for login in logins
        ]

    async def until_over(self, run_ids: Iterable[int], *, within_s: float = 120) -> list[Run]:
        """Wait until no run is active any more."""
        async with asyncio.timeout(within_s):
            return [await self._until_over(run_id) for run_id in run_ids]

    async def _until_over(self, run_id: int) -> Run:
        while (run := await self.orchestrator.show(run_id)).status in ACTIVE_RUNS:
            await asyncio.sleep(_LOOK_EVERY_S)
        return run

    async def until_recovered(self, *, within_s: float = 60) -> None:
        """Wait until a leader has made the gate agree with SQL for the first time."""
        async with asyncio.timeout(within_s):
            while await self.parts.gate.needs_rebuild():
                await asyncio.sleep(_LOOK_EVERY_S)

    async def until_told(self, *, within_s: float = 60) -> None:
        """Wait until every event was handled."""
        async with asyncio.timeout(within_s):
            while (await self.parts.database.read(outbox.depth)).pending:
                await asyncio.sleep(_LOOK_EVERY_S)

    async def until_jobs(self, state: JobState, count: int, *, within_s: float = 60) -> None:
        """Wait until at least so many jobs are in a state."""
        async with asyncio.timeout(within_s):
            while await self.parts.database.read(_count_of, state) < count:
                await asyncio.sleep(_LOOK_EVERY_S)

    async def jobs(self, run_id: int) -> list[Any]:
        """The rows of a run's jobs."""
        return await self.parts.database.read(_jobs_of, run_id)

    async def comparison(self, logins: Sequence[str] | None = None) -> Comparison:
        """The copy against the truth."""
        include = self.parts.settings.section(GithubSettings).kinds
        kinds = {USER, REPOSITORY} | {DOCUMENTS[kind] for kind in include if kind in DOCUMENTS}
        return await compare(self.github, self.documents, logins or self.logins, kinds=kinds)

    async def disagreements(self, run_ids: Sequence[int]) -> list[str]:
        """Counters and ends of runs against a recount, once every event was handled."""
        await self.until_told()
        return await self.parts.database.read(disagreements, run_ids)

    async def stopped(self, *, within_s: float = 60) -> list[int]:
        """Ask every living worker to stop in good order; their exit codes."""
        alive = self.fleet.alive
        for worker in alive:
            await worker.says(WORKING)  # before, it does not heed signals
            worker.terminate()
        return [await worker.ends(within_s=within_s) for worker in alive]


def _jobs_of(tx: Transaction, run_id: int) -> list[Any]:
    return list(tx.execute(select(page_jobs).where(page_jobs.c.run_id == run_id).order_by(page_jobs.c.id)))


def _count_of(tx: Transaction, state: JobState) -> int:
    return tx.execute(select(func.count()).select_from(page_jobs).where(page_jobs.c.status == state)).scalar_one()


@asynccontextmanager
async def open_site(
    fork_server: ForkServerClient,
    folder: Path,
    servers: Servers,
    config: SimulatorConfig,
    *,
    settings: dict[str, Any],
    limits: dict[str, Any],
    include: Iterable[str] = ESSENTIAL,
) -> AsyncGenerator[Site]:
    """A site without workers. `settings` are the workers' alone; the driver reaches everything directly."""
    async with AsyncExitStack() as stack:
        github = await stack.enter_async_context(WatchedGithub(config))
        ours: dict[str, Any] = {
            "data_dir": str(folder),
            "valkey_url": servers.valkey_url,
            "database_url": servers.database_url,
            "documents": {"url": servers.documents_url},
            "github": {"api_url": github.url, "kinds": sorted(include)},
            "gate": limits,
        }
        theirs = {
            **ours,
            "valkey_url": servers.valkey_for_workers or servers.valkey_url,
            "database_url": servers.database_for_workers or servers.database_url,
            "documents": {"url": servers.documents_for_workers or servers.documents_url},
            "auto_migrate": False,
            **settings,
        }
        opening = open_github(Settings(**ours, auto_migrate=True), needs_credential=False)
        collection = await stack.enter_async_context(opening)
        for name in github.world.operators():
            await collection.credential_manager.add_token(github.token_of(name), owner=name, name=name, check=False)
        await audit.install(collection.parts.database)
        fleet = await stack.enter_async_context(Fleet(fork_server))
        yield Site(github, collection, fleet, Order(settings=theirs))
