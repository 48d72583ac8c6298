"""HTTP with the dashboard, as `tidegate up` puts it together."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tidegate.app.application import open_application
from tidegate.app.serving import serve_systems
from tidegate.dashboard import open_dashboard
from tidegate.engine.collection import Collection
from tidegate.http import Binding
from tidegate.http.events import ListenerLimit
from tidegate.runtime.service import Service
from tidegate.settings import Settings

SYSTEMS = ("collection", "github", "crawl", "waiting_room", "campaigns")


@dataclass(frozen=True)
class Site:
    """The addresses and the processes of the site."""

    binding: Binding
    services: Mapping[str, Service]


async def open_site(stack: AsyncExitStack, settings: Settings) -> tuple[Site, Collection]:
    """A site as the settings of a deployment describe it, and its collection; `stack` closes both."""
    application = await stack.enter_async_context(open_application(settings, SYSTEMS))
    context, systems = application.context, list(application.systems.values())
    binding, seats = stack.enter_context(Binding(settings.http)), ListenerLimit(settings.http.most_listeners)
    dashboard = open_dashboard(systems, seats)
    service = serve_systems(context, systems, binding, seats=seats, further=dashboard.api())
    return Site(binding, {"http": service, "dashboard": dashboard}), context.get(Collection)
