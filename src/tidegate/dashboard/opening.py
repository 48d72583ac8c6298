"""The dashboard, put together for one process."""

import asyncio
from collections.abc import Sequence

from tidegate.app import Collection, Snapshots
from tidegate.dashboard.desk import DashboardDesk
from tidegate.dashboard.files import Files
from tidegate.dashboard.hub import Hub
from tidegate.dashboard.topics import Readers
from tidegate.http.channel import Seats
from tidegate.http.endpoints import Endpoint
from tidegate.systems.campaigns.campaigns import Campaigns
from tidegate.systems.waiting_room import Reception


class Dashboard:
    """What is further to HTTP, and a service that remembers what figures were."""

    def __init__(self, readers: Readers, hub: Hub) -> None:
        self._sampler, self._desk = readers.sampler, DashboardDesk(readers, hub, Files())

    def endpoints(self) -> Sequence[Endpoint]:
        """See `tidegate.http.serving.Further`."""
        return self._desk.endpoints()

    def close(self) -> None:
        """See `tidegate.http.serving.Further`."""
        self._desk.close()

    async def run(self, stopping: asyncio.Event) -> None:
        """See `tidegate.runtime.service.Service`."""
        await self._sampler.run(stopping)


def open_dashboard(
    collection: Collection,
    seats: Seats,
    *,
    snapshots: Snapshots | None = None,
    reception: Reception | None = None,
    campaigns: Campaigns | None = None,
) -> Dashboard:
    """The dashboard of a process that has these; those who watch take `seats`."""
    readers = Readers(collection, snapshots=snapshots, reception=reception, campaigns=campaigns)
    return Dashboard(readers, Hub(readers.topics(), collection.bulletin, seats))
