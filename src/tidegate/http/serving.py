"""HTTP put together: for a process that answers everything, and for one that only lets itself be looked after."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from tidegate.app import Collection, Parts, Snapshots
from tidegate.app.kinds import NO_KINDS
from tidegate.app.rankings import NO_BOARDS
from tidegate.app.settings.http import HttpSettings
from tidegate.http.access import Access
from tidegate.http.application import build_application
from tidegate.http.authentication import Door
from tidegate.http.binding import Binding
from tidegate.http.campaigns import CampaignDesk
from tidegate.http.channel import Seats
from tidegate.http.crawl_identities import IdentityDesk
from tidegate.http.crawl_products import CrawlProductDesk
from tidegate.http.crawls import CrawlDesk
from tidegate.http.credentials import Credentials
from tidegate.http.dead_entries import DeadEntryDesk
from tidegate.http.dead_letters import DeadLetters
from tidegate.http.dead_snapshots import DeadDesk
from tidegate.http.endpoints import Endpoint
from tidegate.http.entries import EntryDesk
from tidegate.http.fast_campaign_entry import Turnstile
from tidegate.http.fast_snapshot_read import Express
from tidegate.http.feed import RunFeed
from tidegate.http.jobs import Jobs
from tidegate.http.operations import Operations
from tidegate.http.pages import RoomPages
from tidegate.http.places import Paces, Places
from tidegate.http.prefetch import PrefetchDesk
from tidegate.http.quotas import Quotas
from tidegate.http.rankings import RankingDesk
from tidegate.http.reports import Reports
from tidegate.http.request_coalescing import Lobby
from tidegate.http.room_events import PlaceEvents, PlaceStreams
from tidegate.http.rooms import Rooms
from tidegate.http.runs import Runs
from tidegate.http.schedules import SchedulesDesk
from tidegate.http.server import HttpService
from tidegate.http.session_routes import SessionDesk
from tidegate.http.snapshots import SnapshotDesk
from tidegate.http.statistics import StatisticsDesk
from tidegate.http.views import RunViews
from tidegate.systems.campaigns.campaigns import Campaigns
from tidegate.systems.campaigns.gauges import CampaignGauges
from tidegate.systems.crawl.gauges import CrawlGauges
from tidegate.systems.ranking.ranking import Ranking
from tidegate.systems.waiting_room import Reception


class Further(Protocol):
    """What a process answers beside what there is here; it lies above us, and is handed in."""

    def endpoints(self) -> Sequence[Endpoint]:
        """What can be asked."""
        ...

    def close(self) -> None:
        """End the waits and streams among it: the server stops."""
        ...


def serve_collection(
    collection: Collection,
    settings: HttpSettings,
    binding: Binding,
    *,
    snapshots: Snapshots | None = None,
    ranking: Ranking | None = None,
    reception: Reception | None = None,
    campaigns: Campaigns | None = None,
    seats: Seats | None = None,
    further: Further | None = None,
) -> HttpService:
    """A service that answers everything there is to ask, and what is `further` to it; they share the `seats`."""
    parts = collection.parts
    access = Access(settings, valkey=parts.valkey, database=parts.database)
    views = RunViews(parts.database, parts.gate, collection.credentials)
    feed = RunFeed(views.detail, collection.bulletin, seats or Seats(settings.most_listeners))
    desks = [
        SessionDesk(access),
        Runs(collection, views, feed),
        Jobs(collection),
        SchedulesDesk(collection),
        StatisticsDesk(collection),
        Credentials(collection),
        Quotas(collection),
        Reports(collection),
        DeadLetters(collection),
        CrawlDesk(collection),
        CrawlProductDesk(collection.crawl.products, collection.crawl.raws, collection.crawls),
        IdentityDesk(collection.crawl.identities),
        *([] if ranking is None else [RankingDesk(ranking)]),
    ]
    endpoints = [endpoint for desk in desks for endpoint in desk.endpoints()]
    of_snapshots, express, close_snapshots = _snapshots(snapshots, settings, access)
    of_rooms, close_rooms = ([], _nothing_lasts) if reception is None else room_endpoints(reception, settings)
    of_campaigns, close_campaigns = (
        ([], _nothing_lasts) if campaigns is None else campaign_endpoints(campaigns, settings)
    )
    operations = _operations(parts, settings, snapshots)
    absent = {"/v1/snapshots": NO_KINDS} if snapshots is None else {}
    absent |= {"/v1/rankings": NO_BOARDS} if ranking is None else {}
    of_others = [] if further is None else further.endpoints()
    everything = [*endpoints, *of_snapshots, *of_rooms, *of_campaigns, *of_others, *operations]
    application = build_application(everything, settings, access=access, absent=absent)

    def close() -> None:
        feed.close()
        close_snapshots()
        close_rooms()
        close_campaigns()
        if further is not None:
            further.close()

    turnstile = None if campaigns is None else _turnstile(campaigns, access)
    return HttpService(application, binding, on_stop=close, express=express, turnstile=turnstile)


def room_endpoints(reception: Reception, settings: HttpSettings) -> tuple[list[Endpoint], Callable[[], None]]:
    """What there is to ask of waiting rooms, and what ends the streams among it.

    For an application of one's own: `build_application(endpoints, settings)` is one, and can be mounted in another.
    """
    paces, streams = Paces(), PlaceStreams(reception.valkey, most=settings.most_watchers)
    places = Places(reception, paces, partial(PlaceEvents, streams))
    desks = [Rooms(reception, paces), places, RoomPages(reception, paces, settings)]
    return [endpoint for desk in desks for endpoint in desk.endpoints()], streams.close


def campaign_endpoints(campaigns: Campaigns, settings: HttpSettings) -> tuple[list[Endpoint], Callable[[], None]]:
    """What there is to ask of campaigns, and what ends the streams among it."""
    entries = EntryDesk(campaigns, settings)
    desks = [CampaignDesk(campaigns), entries, DeadEntryDesk(campaigns)]
    return [endpoint for desk in desks for endpoint in desk.endpoints()], entries.close


def serve_campaigns(campaigns: Campaigns, settings: HttpSettings, binding: Binding) -> HttpService:
    """A service that answers what there is to ask of campaigns, and nothing else."""
    endpoints, close = campaign_endpoints(campaigns, settings)
    access = Access(settings, valkey=campaigns.valkey, database=campaigns.database)
    application = build_application(endpoints, settings, access=access)
    return HttpService(application, binding, on_stop=close, turnstile=_turnstile(campaigns, access))


def serve_snapshots(snapshots: Snapshots, settings: HttpSettings, binding: Binding) -> HttpService:
    """A service that answers what there is to ask of snapshots."""
    access = Access(settings, valkey=snapshots.parts.valkey, database=snapshots.parts.database)
    endpoints, express, close = _snapshots(snapshots, settings, access)
    operations = _operations(snapshots.parts, settings, snapshots)
    application = build_application([*endpoints, *operations], settings, access=access)
    return HttpService(application, binding, on_stop=close, express=express)


def serve_operations(
    parts: Parts, settings: HttpSettings, binding: Binding, *, snapshots: Snapshots | None = None
) -> HttpService:
    """A service that tells how the process is, and nothing else."""
    access = Access(settings, valkey=parts.valkey, database=parts.database)
    application = build_application(_operations(parts, settings, snapshots), settings, access=access)
    return HttpService(application, binding, on_stop=_nothing_lasts)


def _snapshots(
    snapshots: Snapshots | None, settings: HttpSettings, access: Access
) -> tuple[list[Endpoint], Express | None, Callable[[], None]]:
    """Their endpoints, the short way to what is asked most, and what ends the waits and streams among them."""
    if snapshots is None:
        return [], None, _nothing_lasts
    desk = SnapshotDesk(snapshots, settings)
    lobby = Lobby(snapshots.reader.read, snapshots.news)
    express = Express(snapshots.reader, Door(access, ()), lobby, longest_wait_s=desk.longest_wait_s)

    def close() -> None:
        desk.close()
        lobby.close()

    # In this order: a kind's name can be anything, and `dead` and `prefetch` are addresses of ours.
    ours = [*DeadDesk(snapshots).endpoints(), *PrefetchDesk(snapshots).endpoints()]
    return [*ours, *desk.endpoints()], express, close


def _turnstile(campaigns: Campaigns, access: Access) -> Turnstile:
    """The short way for entries."""
    return Turnstile(campaigns, Door(access, ()), largest_body=access.settings.largest_body)


def _operations(parts: Parts, settings: HttpSettings, snapshots: Snapshots | None) -> list[Endpoint]:
    gauges = [
        CampaignGauges(parts.valkey, parts.database),
        CrawlGauges(parts.database),
        *([] if snapshots is None else [snapshots.gauges]),
    ]
    return list(Operations(parts, open_metrics=settings.open_metrics, gauges=gauges).endpoints())


def _nothing_lasts() -> None:
    """There are no streams here."""
