"""HTTP put together: for a process that answers everything, and for one that only lets itself be looked after."""

from tidegate.assembly import Collection, Parts
from tidegate.http.application import build_application
from tidegate.http.binding import Binding
from tidegate.http.credentials import Credentials
from tidegate.http.dead_letters import DeadLetters
from tidegate.http.endpoints import Endpoint
from tidegate.http.feed import RunFeed
from tidegate.http.jobs import Jobs
from tidegate.http.operations import Operations
from tidegate.http.quotas import Quotas
from tidegate.http.runs import Runs
from tidegate.http.schedules import SchedulesDesk
from tidegate.http.server import HttpService
from tidegate.http.statistics import StatisticsDesk
from tidegate.http.views import RunViews
from tidegate.settings.http import HttpSettings


def serve_collection(collection: Collection, settings: HttpSettings, binding: Binding) -> HttpService:
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
    ]
    endpoints = [endpoint for desk in desks for endpoint in desk.endpoints()]
    application = build_application([*endpoints, *_operations(parts, settings)], settings)
    return HttpService(application, binding, on_stop=feed.close)


def serve_operations(parts: Parts, settings: HttpSettings, binding: Binding) -> HttpService:
    """A service that tells how the process is, and nothing else."""
    application = build_application(_operations(parts, settings), settings)
    return HttpService(application, binding, on_stop=_nothing_lasts)


def _operations(parts: Parts, settings: HttpSettings) -> list[Endpoint]:
    return list(Operations(parts, open_metrics=settings.open_metrics).endpoints())


def _nothing_lasts() -> None:
    """There are no streams here."""
