"""A whole process that visits pages of a marketplace politely, in this very process."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import select

from tests.processes.at_work import at_work, collecting
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.engine.calls import CallRoute
from tidegate.engine.credentials.opening import open_vault
from tidegate.engine.job_store import JobResult
from tidegate.engine.lifecycle import RunState
from tidegate.engine.source import JobSpec, Reading, Subject, Task, Verdict
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.tables import page_jobs
from tidegate.engine.upstream import Answer, Request, UpstreamClient, UpstreamSettings
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.system import Context
from tidegate.systems.crawl import health_records
from tidegate.systems.crawl.health_records import refusal
from tidegate.systems.crawl.host_registry import POOL
from tidegate.systems.crawl.hosts import host_of
from tidegate.systems.crawl.identities import IdentityRegistry
from tidegate.systems.crawl.politeness import Eligibility, PoliteCaller, PoliteRequest
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate_simulators.marketplace import MarketplaceSimulator


class PageSource:
    """Visits the paths that a run names, and brings nothing home."""

    name = "pages"
    planning_kinds = frozenset[str]()

    def __init__(self, settings: CrawlSettings) -> None:
        self._settings = settings

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        params = {"ignore_robots": subject.options.get("ignore_robots", False)}
        url, paths = subject.options["url"], subject.options["paths"]
        return [
            JobSpec(kind="page", resource=path, params=params | {"url": url + path}, bucket=subject.login)
            for path in paths
        ]

    def robots_url(self, spec: JobSpec) -> str | None:
        return None if spec.params["ignore_robots"] else spec.params["url"]

    def request(self, task: Task, secret: str) -> Request:
        return PoliteRequest(
            url=task.spec.params["url"],
            purpose="crawl.test",
            headers=msgspec.json.decode(secret, type=dict[str, str]),
            ignores_robots=task.spec.params["ignore_robots"],
        )

    def read(self, task: Task, answer: Answer) -> Reading:
        del task
        said = refusal(answer, self._settings)
        if said is not None:
            return said
        return Reading() if answer.status == 200 else Reading(verdict=Verdict.RETRY, reason=str(answer.status))


class Crawler:
    """One process of an installation."""

    def __init__(self, settings: Settings, parts: Context, client: UpstreamClient) -> None:
        self.parts, self.database = parts, parts.database
        self.book = IdentityRegistry(
            parts.database, parts.gate, open_vault(settings, parts.database), settings.section(CrawlSettings)
        )
        way = CallRoute(PoliteCaller(client, self.book.hosts), self.book)
        dependencies = CollectDependencies(
            parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database)
        )
        source = PageSource(settings.section(CrawlSettings))
        self.collector = Collector(
            dependencies,
            [source],
            caller=client,
            secrets=self.book,
            routes={"pages": way},
            writers={"pages": self},
            register_credentials=self.book.register,
            excluded=Eligibility(source, self.book).excluded,
        )

    def write(self, tx: Transaction, endings: Sequence[JobResult]) -> None:
        health_records.note(tx, endings)

    async def begin(self, url: str, paths: Sequence[str], *, user_id: str = "ada", ignore_robots: bool = False) -> int:
        host = host_of(url)
        await self.book.hosts.register(host)
        options = {"url": url, "paths": list(paths), "ignore_robots": ignore_robots}
        subject = Subject(user_id=user_id, login=host, options=options)
        return await self.collector.orchestrator.begin("pages", subject, pool=POOL)

    async def ended(self, run_id: int) -> dict[str, tuple[str, str | None]]:
        """When the run is over: what became of each path, and why."""
        async with patience():
            while (run := await self.collector.orchestrator.show(run_id)).status not in _OVER:
                await look_again()
        del run
        return await self.database.read(_outcomes, run_id)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        async with at_work(collecting(self.parts, self.collector)):
            yield


_OVER = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELED)


def _outcomes(tx: Transaction, run_id: int) -> dict[str, tuple[str, str | None]]:
    rows: Any = tx.execute(select(page_jobs).where(page_jobs.c.run_id == run_id))
    return {row.resource_key: (row.status, row.last_error) for row in rows}


@asynccontextmanager
async def crawlers(
    folder: Path, url: str, valkeys: Sequence[Valkey], sim: MarketplaceSimulator, crawl: CrawlSettings, names: int
) -> AsyncGenerator[list[Crawler]]:
    """Processes that work, one for each connection, with the first `names` of the marketplace's identities."""
    async with AsyncExitStack() as stack:
        settings, processes = Settings(data_dir=folder, crawl=crawl), list[Crawler]()
        for valkey in valkeys:
            database = await stack.enter_async_context(await Database.open(url))
            client = await stack.enter_async_context(UpstreamClient(UpstreamSettings(private_hosts=("127.0.0.1",))))
            processes.append(Crawler(settings, build_context(settings, valkey, database), client))
        for identity in sim.identities[:names]:
            await processes[0].book.add(identity.name, identity.headers)
        for process in processes:
            await stack.enter_async_context(process.working())
        yield processes
