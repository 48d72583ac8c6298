"""HTTP with the dashboard, as `tidegate up` puts it together."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tidegate.app import Collection
from tidegate.app.serving import serve_systems
from tidegate.dashboard import open_dashboard
from tidegate.http import Binding
from tidegate.http.channel import Seats
from tidegate.runtime.service import Service
from tidegate.system import find_system


@dataclass(frozen=True)
class Site:
    """Where it answers, and what has to run for that."""

    binding: Binding
    services: Mapping[str, Service]


async def open_site(stack: AsyncExitStack, collection: Collection) -> Site:
    """Whatever the settings of a deployment say of HTTP; `stack` closes it."""
    parts, http = collection.parts, collection.parts.settings.http
    binding, seats = stack.enter_context(Binding(http)), Seats(http.most_listeners)
    others = [find_system(name).open(parts) for name in ("waiting_room", "campaigns")]
    systems = [collection.opened(), *[await stack.enter_async_context(each) for each in others]]
    dashboard = open_dashboard(parts, systems, seats)
    service = serve_systems(parts, systems, binding, seats=seats, further=dashboard)
    return Site(binding, {"http": service, "dashboard": dashboard})
