"""The credentials of an installation, put together; and what becomes of runs that nobody can serve any more."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from tidegate.connections import open_context
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import unserved_pools
from tidegate.engine.change_feed import ChangeFeed
from tidegate.engine.committer import Moved
from tidegate.engine.credentials import CredentialBook, records
from tidegate.engine.credentials.opening import open_vault
from tidegate.engine.credentials.pools import has_credentials
from tidegate.engine.credentials.rotation import Holding
from tidegate.engine.places import at_place
from tidegate.engine.recovery import Recovery
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.primitives.gate import Gate
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction
from tidegate.system import Context
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.github import GithubSource
from tidegate.systems.github.authority import GithubAuthority
from tidegate.systems.github.settings import HOW_TO_GET_ONE, GithubSettings

log = get_logger(__name__)


class Stranding:
    """Fails runs whose pool has no valid credential: nobody could make their calls, and they would wait for ever.

    Their jobs can be retried as soon as there is one.
    """

    def __init__(self, database: Database, gate: Gate, *, on_moved: Moved) -> None:
        self._database, self._recovery, self._on_moved = database, Recovery(database, gate), on_moved

    async def look_everywhere(self) -> None:
        """Look at all runs; for whoever begins to lead, since somebody may have died before he could."""
        for pool in await self._database.read(unserved_pools.pools_in_use):
            await self.look_at(pool)

    async def look_at(self, pool: str) -> None:
        """Fail the runs of a pool if it has nobody left; pools that have no credentials at all are left alone."""
        if not has_credentials(GithubSource.name, pool) or await self._database.read(_is_served, pool):
            return
        failed = await self._database.transaction(_fail_unserved, pool)
        if failed:
            self._on_moved(failed)
            jobs = [job_id for ids in failed.values() for job_id in ids]
            await self._recovery.forget_jobs(jobs)
            log.error("credentials.runs_failed", pool=pool, runs=len(failed), jobs=len(jobs))


def _is_served(tx: Transaction, pool: str) -> bool:
    """By somebody who may make calls where the runs collect from, whatever address we ourselves were given."""
    return bool(at_place(tx, GithubSource.name, records.audiences_of(tx, pool)))


def _fail_unserved(tx: Transaction, pool: str) -> dict[int, list[int]]:
    if _is_served(tx, pool):
        return {}
    return unserved_pools.fail(tx, pool, f"no valid credential for pool {pool!r}: {HOW_TO_GET_ONE}, and retry the run")


def put_book_together(
    settings: Settings, parts: Context, client: UpstreamClient, on_unserved: Callable[[str], Awaitable[None]]
) -> CredentialBook:
    """The credentials of this installation; `on_unserved` is called with a pool that has nobody left."""
    database = parts.database
    vault = open_vault(settings, database)
    authority = GithubAuthority(client, settings.section(GithubSettings).api_url)
    book = CredentialBook(
        database,
        parts.gate,
        vault,
        authority,
        source=GithubSource.name,
        limits=settings.gate,
        on_unserved=on_unserved,
        before_enrolment=Recovery(database, parts.gate, sources=[GithubSource.name]).remind_gate,
    )

    def identities() -> Holding:
        from tidegate.systems.crawl.identities import IdentityBook

        return IdentityBook(database, parts.gate, vault, settings.section(CrawlSettings))

    book.holdings.append(identities)
    return book


@asynccontextmanager
async def open_credentials(settings: Settings) -> AsyncGenerator[CredentialBook]:
    """The credentials of this installation, for the length of a block: for commands that look after them."""
    async with open_context(settings) as parts, UpstreamClient(settings.section(UpstreamSettings)) as client:
        bulletin = ChangeFeed(parts.valkey, parts.unit)
        stranding = Stranding(parts.database, parts.gate, on_moved=bulletin.moved)
        book = put_book_together(settings, parts, client, stranding.look_at)
        try:
            yield book
        finally:
            await book.close()
            await bulletin.close()
