"""HTTP put together: for a process that answers everything, and for one that only lets itself be looked after."""

from collections.abc import Callable

from tidegate.assembly import Collection, Parts, Snapshots
from tidegate.assembly.kinds import NO_KINDS
from tidegate.assembly.rankings import NO_BOARDS
from tidegate.crowd.ranking.ranking import Ranking
from tidegate.http.application import build_application
from tidegate.http.binding import Binding
from tidegate.http.credentials import Credentials
from tidegate.http.dead_letters import DeadLetters
from tidegate.http.dead_snapshots import DeadDesk
from tidegate.http.door import Door
from tidegate.http.endpoints import Endpoint
from tidegate.http.express import Express
from tidegate.http.feed import RunFeed
from tidegate.http.jobs import Jobs
from tidegate.http.lobby import Lobby
from tidegate.http.operations import Operations
from tidegate.http.prefetch import PrefetchDesk
from tidegate.http.quotas import Quotas
from tidegate.http.rankings import RankingDesk
from tidegate.http.runs import Runs
from tidegate.http.schedules import SchedulesDesk
from tidegate.http.server import HttpService
from tidegate.http.snapshots import SnapshotDesk
from tidegate.http.statistics import StatisticsDesk
from tidegate.http.views import RunViews
from tidegate.settings.http import HttpSettings


def serve_collection(
    collection: Collection,
    settings: HttpSettings,
    binding: Binding,
    *,
    snapshots: Snapshots | None = None,
    ranking: Ranking | None = None,
) -> HttpService:
    """A service that answers everything there is to ask."""
    parts = collection.parts
    views = RunViews(parts.database, parts.gate, collection.credentials)
    feed = RunFeed(views.detail, collection.bulletin, most_listeners=settings.most_listeners)
    desks = [
        Runs(collection, views, feed),
        Jobs(collection),
        SchedulesDesk(collection),
        StatisticsDesk(collection),
        Credentials(collection),
        Quotas(collection),
        DeadLetters(collection),
        *([] if ranking is None else [RankingDesk(ranking)]),
    ]
    endpoints = [endpoint for desk in desks for endpoint in desk.endpoints()]
    of_snapshots, express, close_snapshots = _snapshots(snapshots, settings)
    operations = _operations(parts, settings, snapshots)
    absent = {"/v1/snapshots": NO_KINDS} if snapshots is None else {}
    absent |= {"/v1/rankings": NO_BOARDS} if ranking is None else {}
    application = build_application([*endpoints, *of_snapshots, *operations], settings, absent=absent)

    def close() -> None:
        feed.close()
        close_snapshots()

    return HttpService(application, binding, on_stop=close, express=express)


def serve_snapshots(snapshots: Snapshots, settings: HttpSettings, binding: Binding) -> HttpService:
    """A service that answers what there is to ask of snapshots."""
    endpoints, express, close = _snapshots(snapshots, settings)
    operations = _operations(snapshots.parts, settings, snapshots)
    application = build_application([*endpoints, *operations], settings)
    return HttpService(application, binding, on_stop=close, express=express)


def serve_operations(
    parts: Parts, settings: HttpSettings, binding: Binding, *, snapshots: Snapshots | None = None
) -> HttpService:
    """A service that tells how the process is, and nothing else."""
    application = build_application(_operations(parts, settings, snapshots), settings)
    return HttpService(application, binding, on_stop=_nothing_lasts)


def _snapshots(
    snapshots: Snapshots | None, settings: HttpSettings
) -> tuple[list[Endpoint], Express | None, Callable[[], None]]:
    """Their endpoints, the short way to what is asked most, and what ends the waits and streams among them."""
    if snapshots is None:
        return [], None, _nothing_lasts
    desk = SnapshotDesk(snapshots, settings)
    lobby = Lobby(snapshots.reader.read, snapshots.news)
    express = Express(snapshots.reader, Door(settings, ()), lobby, longest_wait_s=desk.longest_wait_s)

    def close() -> None:
        desk.close()
        lobby.close()

    # In this order: a kind's name can be anything, and `dead` and `prefetch` are addresses of ours.
    ours = [*DeadDesk(snapshots).endpoints(), *PrefetchDesk(snapshots).endpoints()]
    return [*ours, *desk.endpoints()], express, close


def _operations(parts: Parts, settings: HttpSettings, snapshots: Snapshots | None) -> list[Endpoint]:
    gauges = [] if snapshots is None else [snapshots.gauges]
    return list(Operations(parts, open_metrics=settings.open_metrics, gauges=gauges).endpoints())


def _nothing_lasts() -> None:
    """There are no streams here."""
