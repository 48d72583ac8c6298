"""Declares the crawl as a source: identities as credentials, polite calls, and products."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tidegate.engine.source_plugin import SourceParts, SourcePlugin
from tidegate.systems.crawl import SOURCE
from tidegate.systems.crawl.settings import CrawlSettings

if TYPE_CHECKING:
    from tidegate.engine.calls import UpstreamCalls
    from tidegate.engine.credentials.opening import EncryptedSecrets
    from tidegate.engine.credentials.vault import Vault
    from tidegate.storage.documents import Documents
    from tidegate.system import Context
    from tidegate.systems.crawl.identities import IdentityRegistry
    from tidegate.systems.crawl.products import Products
    from tidegate.systems.crawl.raws import Raws
    from tidegate.systems.crawl.site import Sites
    from tidegate.systems.crawl.source import CrawlSource


class CrawlParts(NamedTuple):
    """Objects that a process of the crawl opens in addition to its jobs."""

    identities: IdentityRegistry
    products: Products
    raws: Raws


class CrawlPlugin(SourcePlugin):
    """The source plug-in of the crawl."""

    name = SOURCE
    stores_credentials = False

    @cached_property
    def sites(self) -> Sites:
        """The built-in sites and those of the settings; raises `InvalidSettings`."""
        from tidegate.systems.crawl.marketplace import MarketplaceSite
        from tidegate.systems.crawl.site import Sites, load_site

        own = self.settings.section(CrawlSettings).sites
        return Sites([MarketplaceSite(), *(load_site(place) for place in own)])

    @cached_property
    def source(self) -> CrawlSource:
        """The source that reads these sites."""
        from tidegate.engine.settings import CollectSettings
        from tidegate.systems.crawl.source import CrawlSource

        tries = self.settings.section(CollectSettings).max_attempts
        return CrawlSource(self.sites, self.settings.section(CrawlSettings), tries=tries)

    def command(self, user_id: str, login: str) -> str:
        """A crawl is resumed by the command that started it."""
        del login
        return f"the same command, tidegate crawl run {user_id} …"

    def identities(self, cell: Context, vault: Vault) -> IdentityRegistry:
        """The identities, registered with the gate of the cell."""
        from tidegate.systems.crawl.identities import IdentityRegistry

        return IdentityRegistry(cell.database, cell.gate, vault, self.settings.section(CrawlSettings))

    def holding(self, cell: Context, vault: Vault) -> EncryptedSecrets:
        """The encrypted headers of the identities."""
        return self.identities(cell, vault)

    @asynccontextmanager
    async def open(self, cell: Context, client: UpstreamCalls, documents: Documents) -> AsyncGenerator[SourceParts]:
        """Open the identities, the polite caller, and the processor that applies answers to products."""
        del documents
        from tidegate.engine.calls import CallRoute
        from tidegate.engine.credentials.opening import open_vault
        from tidegate.primitives.wakeup import Wakeup
        from tidegate.runtime.outbox_notifier import NotifiedRelay, OutboxNotifier
        from tidegate.systems.crawl.finalizing import CrawlFinalizer
        from tidegate.systems.crawl.health_records import note
        from tidegate.systems.crawl.politeness import Eligibility, PoliteCaller
        from tidegate.systems.crawl.processing import RawProcessor
        from tidegate.systems.crawl.products import Products
        from tidegate.systems.crawl.raws import Raws, rules
        from tidegate.systems.crawl.writing import RAWS_STORED, CrawlWriter

        database, wakeup = cell.database, Wakeup(cell.valkey, cell.unit.key("raws"))
        identities = self.identities(cell, open_vault(self.settings, database))
        processor = RawProcessor(database, self.sites, self.settings.section(CrawlSettings))
        cell.share(CrawlParts(identities, Products(database), Raws(database, wakeup.notify)))
        yield SourceParts(
            credentials=identities,
            route=CallRoute(PoliteCaller(client, identities.hosts), identities, keeps_answers=True),
            finalizers=[CrawlFinalizer(database, processor).finalize],
            writer=CrawlWriter(note),
            records_claims=True,
            excluded=Eligibility(self.source, identities).excluded,
            services={
                "raws notifier": OutboxNotifier(
                    database, wakeup, leads_here=lambda: processor.is_running, topic=RAWS_STORED
                )
            },
            retention_rules=rules(
                database,
                raws=self.settings.section(CrawlSettings).raws_kept,
                dead_letters=self.settings.retention.dead_letters,
                identity_health=self.settings.retention.identity_health,
            ),
            leader_services={"raws": NotifiedRelay(processor, wakeup)},
            on_loss=[processor.notify],
        )
