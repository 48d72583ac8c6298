"""The credentials of an installation for GitHub, put together."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from tidegate.app.unserved_runs import UnservedRuns
from tidegate.connections import open_context
from tidegate.engine.change_feed import ChangeFeed
from tidegate.engine.credentials import CredentialBook
from tidegate.engine.credentials.opening import open_vault
from tidegate.engine.credentials.rotation import Holding
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.settings import Settings
from tidegate.system import Context
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.github import GithubSource
from tidegate.systems.github.authority import GithubAuthority
from tidegate.systems.github.settings import GithubSettings


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
        unserved = UnservedRuns(parts, GithubSource.name, on_moved=bulletin.moved)
        book = put_book_together(settings, parts, client, unserved.look_at)
        try:
            yield book
        finally:
            await book.close()
            await bulletin.close()
