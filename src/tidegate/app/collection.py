"""Collection from GitHub and the crawl, put together: the same in a command, in a worker, and behind HTTP."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tidegate.app.cells import SHARED_SOURCES, orchestrator_of
from tidegate.app.collecting import Addition, Collecting, put_schedules_together
from tidegate.app.crawl import Crawl, put_crawl_together
from tidegate.app.credentials import put_book_together
from tidegate.app.deferred_token import AWAY, LateToken
from tidegate.app.opened_collection import OpenCollection
from tidegate.app.preflight import check_before_migration
from tidegate.app.sources import SourceCollection
from tidegate.app.token_check import check_token
from tidegate.app.unserved_runs import UnservedRuns
from tidegate.connections import open_context
from tidegate.core.errors import InvalidSettings, NotFound
from tidegate.engine import job_store, runs
from tidegate.engine.change_feed import ChangeFeed
from tidegate.engine.collector import CollectDependencies, Collector
from tidegate.engine.credentials import CredentialBook
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source_addresses import SourceAddressConflict, register_source_address
from tidegate.engine.sqs import open_aws
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.addresses import PrivateHosts
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.primitives.stream import Passage
from tidegate.settings import Settings
from tidegate.storage.documents import open_documents
from tidegate.storage.sql import Database
from tidegate.system import Context, enabled_systems
from tidegate.systems.crawl.crawls import Crawls
from tidegate.systems.github import GithubSettings, GithubSource
from tidegate.systems.github.settings import VARIABLE
from tidegate.systems.github.statistics import Statistics


@dataclass(frozen=True, kw_only=True)
class Collection(Collecting):
    """A process's hold on collection from GitHub, and on the crawl: one worker, one gate, two sources."""

    crawl: Crawl
    credentials: CredentialBook
    statistics: Statistics
    """Of users and of everybody; each run brings them up to date before it is complete."""
    crawls: Crawls
    """The door through which crawls begin."""
    late_token: LateToken | None = None
    """The token of whoever started the process, where the upstream was away at the start: a service to be run."""

    async def orchestrator_of(self, run_id: int) -> Orchestrator:
        """Retries and cancels a run of any source: its jobs are offered to the gate that its workers read.

        Raises `NotFound`.
        """
        run = await self.parts.database.read(runs.get, run_id)
        if run.source in SHARED_SOURCES:
            return self.orchestrator
        known = self.parts.shared.get(SourceCollection)
        if isinstance(known, SourceCollection) and run.source in known.cells:
            return known.cells[run.source].orchestrator
        return orchestrator_of(self.parts, run.source, on_moved=self.bulletin.moved)

    async def run_of(self, job_id: int) -> int:
        """The run of a job. Raises `NotFound`."""
        found = await self.parts.database.read(job_store.runs_of, [job_id])
        if not found:
            raise NotFound("job", job_id)
        return found[0]

    def opened(self) -> OpenCollection:
        """What it contributes to a process."""
        return OpenCollection(self)


@asynccontextmanager
async def open_collection(
    settings: Settings, *, token: str | None = None, needs_credential: bool = True
) -> AsyncGenerator[Collection]:
    """A context, and everything that collection needs, for the length of a block; see `open_collection_on`."""
    given = None if token == os.environ.get(VARIABLE) else token  # that of the environment is checked by the system
    check = partial(check_before_migration, settings, enabled_systems(settings), [lambda: check_token(settings, given)])
    async with (
        open_context(settings, before_migration=check) as context,
        open_collection_on(context, token=token, needs_credential=needs_credential) as collection,
    ):
        yield collection


@asynccontextmanager
async def open_collection_on(
    parts: Context, *, token: str | None = None, needs_credential: bool = True
) -> AsyncGenerator[Collection]:
    """Everything that collection needs, for the length of a block.

    `token` is one that whoever starts the process gives it, in memory alone; it serves everybody while no stored
    credential does. Without any credential `InvalidSettings` says how to get one, unless it can do without: then an
    upstream that is away at the start is no error, and `late_token` tries again. It also says so where the database has
    data from another address.
    """
    settings = parts.settings
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(UpstreamClient(settings.section(UpstreamSettings)))
        documents = await open_documents(settings.documents, parts.database)
        stack.push_async_callback(documents.close)
        bulletin = ChangeFeed(parts.valkey, parts.unit)
        stack.push_async_callback(bulletin.close)
        unserved = UnservedRuns(parts, GithubSource.name, on_moved=bulletin.moved)
        book = put_book_together(settings, parts, client, unserved.look_at)
        stack.push_async_callback(book.close)
        # First of all: whoever may not be here must not have taken the place of another one's token.
        await _require_one_place(parts.database, settings.section(GithubSettings))
        late = await _borrow(book, token, is_needed=needs_credential, on_used=lambda: collector.duty.notify())  # noqa: PLW0108 - made below
        if needs_credential:
            await book.require_any()

        async def enrol() -> None:
            await book.enrol()
            await crawl.identities.enrol()
            if late is None or not late.is_awaited:
                await unserved.look_everywhere()

        github = GithubSource(settings.section(GithubSettings).api_url, settings.section(GithubSettings).kinds)
        crawl = put_crawl_together(parts, client)
        sources = [github, crawl.source]
        statistics = Statistics(parts.database, documents.of(GithubSource.name))
        aws = await stack.enter_async_context(
            open_aws(settings.section(AwsSettings), Passage(parts.valkey, parts.jobs), parts.owner)
        )
        collector = Collector(
            CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, documents),
            sources,
            caller=client,
            secrets=book,
            enrol_credentials=enrol,
            finalizers=[statistics.finalize, crawl.finalizer.finalize],
            after_offer=unserved.look_at,
            ways={crawl.source.name: crawl.way},
            writers={crawl.source.name: crawl.writer},
            records_executions={crawl.source.name},
            on_moved=bulletin.moved,
            settings=settings.section(CollectSettings),
            intake=aws.intake,
            most_redirects=settings.section(UpstreamSettings).most_redirects,
            barred=crawl.eligibility.barred,
        )

        async def pool_for(source: str, user_id: str) -> str:
            whose = crawl.identities if source == crawl.source.name else book
            return await whose.pool_for(user_id)

        schedules, due = put_schedules_together(parts, collector, sources, pool_for)
        yield Collection(
            parts=parts,
            documents=documents,
            collector=collector,
            bulletin=bulletin,
            schedules=schedules,
            due_schedules=due,
            addition=crawl.addition.joined(
                Addition(services={**aws.services, **aws.inbox(schedules.trigger)}, sources=aws.sources)
            ),
            crawl=crawl,
            crawls=Crawls(
                collector.orchestrator,
                schedules,
                crawl.identities,
                crawl.raws,
                PrivateHosts(settings.section(UpstreamSettings).private_hosts),
            ),
            credentials=book,
            statistics=statistics,
            late_token=late,
        )


async def _borrow(
    book: CredentialBook, token: str | None, *, is_needed: bool, on_used: Callable[[], object]
) -> LateToken | None:
    """Use a token that was given; where the upstream is away and nobody needs it at once, it is tried again later."""
    if not token:
        return None
    try:
        await book.borrow(token)
    except AWAY as error:
        if is_needed:
            raise
        return LateToken(book, token, error, on_used=on_used)
    return None


async def _require_one_place(database: Database, github: GithubSettings) -> None:
    """Two GitHubs in one database would overwrite each other's items."""
    try:
        await database.transaction(register_source_address, GithubSource.name, github.api_url, github.moved_from)
    except SourceAddressConflict as other:
        raise InvalidSettings(
            f"github.api_url is {other.wanted}, but the data in {database.name} was collected from {other.present}. "
            "Both in one database would overwrite each other: give this one its own data folder (TIDEGATE_DATA_DIR) or "
            "database. If it is the same GitHub under a new address, set TIDEGATE_GITHUB__MOVED_FROM to the old one"
        ) from None
