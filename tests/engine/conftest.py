"""A whole process that collects shelves, in this very process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.engine.shelf import ShelfSource, ShelfUpstream
from tests.processes.at_work import at_work, collecting
from tests.servers.migrated import migrated_file
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.engine.calls import CallRoute
from tidegate.engine.lifecycle import RunState
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.tables import page_jobs
from tidegate.primitives.gate import CredentialLimits
from tidegate.settings import Settings
from tidegate.storage.documents import Documents, SqlDocuments
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.system import Context

POOL = "librarians"
LIMITS = CredentialLimits(concurrency=50, first_concurrency=50, per_minute=1_000_000, floor=0)


class Library:
    """One deployment, and what the tests want of it."""

    def __init__(
        self,
        parts: Context,
        upstream: ShelfUpstream,
        documents: Documents | None = None,
        at_once: int = 200,
        source: ShelfSource | None = None,
        keeps_answers: bool = False,
        **wishes: Any,
    ) -> None:
        """`wishes` are for the collector."""
        self.parts, self.upstream = parts, upstream
        self.documents = documents or SqlDocuments(parts.database)
        self.librarians, self.moved = ["librarian"], list[int]()
        self.source = source or ShelfSource()
        if keeps_answers:
            wishes["routes"] = {self.source.name: CallRoute(upstream, self, keeps_answers=True)}
        dependencies = CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, self.documents)
        self.collector = Collector(
            dependencies,
            [self.source],
            caller=upstream,
            secrets=self,
            register_credentials=self.register,
            on_moved=self.moved.extend,
            at_once=at_once,
            **wishes,
        )
        self.orchestrator = self.collector.orchestrator

    async def register(self) -> None:
        for librarian in self.librarians:
            await self.parts.gate.register(librarian, pool=POOL, limits=LIMITS)

    async def secret_of(self, credential: str) -> str:
        return f"secret of {credential}"

    async def begin(self, login: str = "ada") -> int:
        return await self.orchestrator.begin("shelves", Subject(user_id=login, login=login), pool=POOL)

    async def until(self, run_id: int, *states: RunState) -> Run:
        wanted = states or (RunState.COMPLETED,)
        async with patience():
            while (run := await self.orchestrator.show(run_id)).status not in wanted:
                await look_again()
        return run

    async def ended(self, login: str = "ada") -> Run:
        """A whole run, for a process that works."""
        return await self.until(await self.begin(login), RunState.COMPLETED, RunState.FAILED)

    async def items(self) -> list[str]:
        return sorted([document.id async for document in self.documents.of(self.source.name).iterate("item")])

    async def jobs(self, run_id: int) -> list[Any]:
        return await self.parts.database.read(_jobs_of, run_id)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        async with at_work(collecting(self.parts, self.collector)):
            yield


def _jobs_of(tx: Transaction, run_id: int) -> list[Any]:
    return list(tx.execute(select(page_jobs).where(page_jobs.c.run_id == run_id).order_by(page_jobs.c.id)))


@pytest.fixture
def upstream() -> ShelfUpstream:
    return ShelfUpstream({"ada-novels": 7, "ada-poems": 3, "ada-empty": 0, "bob-maps": 4})


@pytest.fixture
def library(embedded: Valkey, database: Database, upstream: ShelfUpstream) -> Library:
    return Library(build_context(Settings(), embedded, database), upstream)


@pytest.fixture
async def local(embedded: Valkey, tmp_path: Path, upstream: ShelfUpstream) -> AsyncGenerator[Library]:
    """On SQLite alone: where the kind of server says nothing new."""
    async with await Database.open(await migrated_file(tmp_path / "local.db")) as database:
        yield Library(build_context(Settings(), embedded, database), upstream)
