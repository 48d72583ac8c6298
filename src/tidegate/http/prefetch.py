"""`/v1/snapshots/prefetch`: what is asked for by the clock."""

from collections.abc import Sequence

from tidegate.http.endpoints import Endpoint
from tidegate.http.snapshots import TAG
from tidegate.systems.snapshots.opening import Snapshots
from tidegate.systems.snapshots.prefetch.status import PrefetchStatus, prefetch_status
from tidegate.systems.snapshots.settings import SnapshotSettings


class PrefetchDesk:
    """The handlers."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._database = snapshots.parts.database
        self._settings = snapshots.parts.settings.section(SnapshotSettings).prefetch

    def endpoints(self) -> Sequence[Endpoint]:
        """What is told."""
        return [Endpoint("GET", "/v1/snapshots/prefetch", self.show_prefetch, TAG)]

    async def show_prefetch(self) -> PrefetchStatus:
        """Tell what is asked for by the clock: how many subjects are due, and what of the day's budget is spent."""
        return await self._database.read(prefetch_status, self._settings)
