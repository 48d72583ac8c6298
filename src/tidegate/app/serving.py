"""Assembles the HTTP server of a process: routes of its systems, sessions, health and metrics."""

from collections.abc import Sequence

from litestar.handlers import HTTPRouteHandler

from tidegate.http.access import Access
from tidegate.http.application import build_application
from tidegate.http.binding import Binding
from tidegate.http.events import ListenerLimit
from tidegate.http.operations import Operations
from tidegate.http.server import HttpService
from tidegate.http.session_routes import SessionRoutes
from tidegate.http.settings import HttpSettings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.system import Api, Context, HttpContext, OpenSystem


def serve_systems(
    context: Context,
    systems: Sequence[OpenSystem],
    binding: Binding,
    *,
    settings: HttpSettings | None = None,
    seats: ListenerLimit | None = None,
    further: Api | None = None,
) -> HttpService:
    """The HTTP service for `systems` and `further` routes (the dashboard's); their event streams share the `seats`."""
    http = http_context(settings or context.settings.http, context.valkey, context.database, seats)
    apis = [system.api(http) for system in systems]
    if further is not None:
        apis.append(further)
    apis.append(Api(routes=[*SessionRoutes(http.access).routes(), *_operations(context, systems, http.settings)]))
    return serve_apis(apis, http, binding)


def serve_operations(
    context: Context, systems: Sequence[OpenSystem], binding: Binding, *, settings: HttpSettings | None = None
) -> HttpService:
    """The HTTP service with health and metrics only."""
    http = http_context(settings or context.settings.http, context.valkey, context.database)
    return serve_apis([Api(routes=_operations(context, systems, http.settings))], http, binding)


def serve_receiver(context: Context, systems: Sequence[OpenSystem], receiver: Api, binding: Binding) -> HttpService:
    """The HTTP service with the receiver of one system, health and metrics."""
    http = http_context(context.settings.http, context.valkey, context.database)
    return serve_apis([receiver, Api(routes=_operations(context, systems, http.settings))], http, binding)


def http_context(
    settings: HttpSettings, valkey: Valkey, database: Database, seats: ListenerLimit | None = None
) -> HttpContext:
    """The objects that all routes of a process share."""
    access = Access(settings, valkey=valkey, database=database)
    return HttpContext(settings, access, seats or ListenerLimit(settings.most_listeners))


def serve_apis(apis: Sequence[Api], http: HttpContext, binding: Binding) -> HttpService:
    """The HTTP service for some APIs, also of a single system: `serve_apis([campaign_api(...)], http, binding)`."""
    routes = [route for api in apis for route in api.routes]
    raw = {prefix: handler for api in apis for prefix, handler in api.raw.items()}
    absent = {prefix: why for api in apis for prefix, why in api.absent.items()}
    application = build_application(routes, http.settings, access=http.access, absent=absent, raw=raw)

    def close() -> None:
        for api in apis:
            api.close()

    return HttpService(application, binding, on_stop=close)


def _operations(context: Context, systems: Sequence[OpenSystem], settings: HttpSettings) -> list[HTTPRouteHandler]:
    gauges = [each for system in systems for each in system.gauges()]
    operations = Operations(context.database, context.valkey, open_metrics=settings.open_metrics, gauges=gauges)
    return list(operations.routes())
