"""HTTP with the dashboard, as `tidegate up` puts it together."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tidegate.app import Collection
from tidegate.app.campaigns import open_campaigns
from tidegate.app.crowd import open_reception
from tidegate.dashboard import open_dashboard
from tidegate.http import Binding, serve_collection
from tidegate.http.channel import Seats
from tidegate.runtime.service import Service


@dataclass(frozen=True)
class Site:
    """Where it answers, and what has to run for that."""

    binding: Binding
    services: Mapping[str, Service]


async def open_site(stack: AsyncExitStack, collection: Collection) -> Site:
    """Whatever the settings of a deployment say of HTTP; `stack` closes it."""
    parts, http = collection.parts, collection.parts.settings.http
    binding, seats = stack.enter_context(Binding(http)), Seats(http.most_listeners)
    reception = open_reception(parts.settings, parts.database, parts.valkey)
    campaigns = await stack.enter_async_context(open_campaigns(parts.settings, parts.database, parts.valkey))
    dashboard = open_dashboard(collection, seats, reception=reception, campaigns=campaigns)
    service = serve_collection(
        collection, http, binding, reception=reception, campaigns=campaigns, seats=seats, further=dashboard
    )
    return Site(binding, {"http": service, "dashboard": dashboard})
