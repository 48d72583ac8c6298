"""The crawl, put together: a second source beside GitHub, the makers of its products, and the door for people."""

from dataclasses import dataclass

from tidegate.app.collecting import Addition
from tidegate.engine.calls import Caller, CallRoute
from tidegate.engine.credentials.opening import open_vault
from tidegate.engine.settings import CollectSettings
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.outbox_notifier import NotifiedRelay, OutboxNotifier
from tidegate.settings import Settings
from tidegate.system import Context
from tidegate.systems.crawl.eligibility import Eligibility
from tidegate.systems.crawl.finalizing import CrawlFinalizer
from tidegate.systems.crawl.health_records import note
from tidegate.systems.crawl.identities import IdentityBook
from tidegate.systems.crawl.marketplace import MarketplaceSite
from tidegate.systems.crawl.politeness import PoliteCaller
from tidegate.systems.crawl.processing import RawProcessor
from tidegate.systems.crawl.products import Products
from tidegate.systems.crawl.raws import Raws
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.site import Sites, load_site
from tidegate.systems.crawl.source import CrawlSource
from tidegate.systems.crawl.writing import RAWS_STORED, CrawlWriter


@dataclass(frozen=True, kw_only=True)
class Crawl:
    """A process's hold on the crawl."""

    source: CrawlSource
    identities: IdentityBook
    products: Products
    raws: Raws
    writer: CrawlWriter
    processor: RawProcessor
    finalizer: CrawlFinalizer
    way: CallRoute
    """How its calls are made, and with which headers."""
    eligibility: Eligibility
    """Which identities must not make a call."""
    addition: Addition


def crawl_sites(settings: Settings) -> Sites:
    """The sites that every installation knows, and those of its settings; raise `InvalidSettings`."""
    return Sites([MarketplaceSite(), *(load_site(place) for place in settings.section(CrawlSettings).sites)])


def put_crawl_together(parts: Context, client: Caller) -> Crawl:
    """The crawl of this installation, on parts that are open."""
    settings, database, sites = parts.settings.section(CrawlSettings), parts.database, crawl_sites(parts.settings)
    bell = Wakeup(parts.valkey, parts.unit.key("raws"))
    identities = IdentityBook(database, parts.gate, open_vault(parts.settings, database), settings)
    processor = RawProcessor(database, sites, settings)
    announcer = OutboxNotifier(database, bell, leads_here=lambda: processor.is_running, topic=RAWS_STORED)
    source = CrawlSource(sites, settings, tries=parts.settings.section(CollectSettings).max_attempts)
    return Crawl(
        source=source,
        identities=identities,
        eligibility=Eligibility(source, identities),
        products=Products(database),
        raws=Raws(database, bell.notify),
        writer=CrawlWriter(note),
        processor=processor,
        finalizer=CrawlFinalizer(database, processor),
        way=CallRoute(PoliteCaller(client, identities.hosts), identities, keeps_answers=True),
        addition=Addition(
            services={"raws-announcer": announcer},
            duties={"raws": NotifiedRelay(processor, bell)},
            on_death=[processor.notify],
        ),
    )
