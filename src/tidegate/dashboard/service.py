"""Assembles the dashboard of one process."""

import asyncio
from collections.abc import Sequence

from tidegate.dashboard.dead_letters import GroupedDeadLetters
from tidegate.dashboard.files import Files
from tidegate.dashboard.hub import Hub
from tidegate.dashboard.routes import DashboardRoutes, Readers
from tidegate.engine.system import OpenCollection
from tidegate.http.events import ListenerLimit
from tidegate.system import Api, OpenSystem


class Dashboard:
    """The routes of the dashboard, and the service that records its history."""

    def __init__(self, readers: Readers, hub: Hub, groups: GroupedDeadLetters) -> None:
        self._sampler, self._routes = readers.sampler, DashboardRoutes(readers, hub, Files(), groups)

    def api(self) -> Api:
        """The routes of the dashboard, and what ends their event streams."""
        return Api(routes=self._routes.routes(), close=self._routes.close)

    async def run(self, stopping: asyncio.Event) -> None:
        """See `tidegate.runtime.service.Service`."""
        await self._sampler.run(stopping)


def open_dashboard(systems: Sequence[OpenSystem], seats: ListenerLimit) -> Dashboard:
    """Open the dashboard of a process with these open systems. Live streams occupy `seats`."""
    collection = next(each for each in systems if isinstance(each, OpenCollection)).collection
    readers = Readers(collection, systems)
    hub = Hub(readers.topics(), collection.change_feed, seats)
    return Dashboard(readers, hub, GroupedDeadLetters(systems))
