"""Topics of the live stream: the overviews of the dashboard, and the first pages of lists."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from tidegate.dashboard.dead_letters import DeadReader
from tidegate.dashboard.history import History, HistoryReader, HistoryView
from tidegate.dashboard.overview import OverviewReader
from tidegate.dashboard.runtime_status import RuntimeStatusReader
from tidegate.dashboard.sampler import GAP, Sampler
from tidegate.engine.api.quotas import PoolFilter, QuotaRoutes
from tidegate.engine.api.runs import RunFilter, run_page
from tidegate.engine.collection import Collection
from tidegate.system import OpenSystem, Topic


class TopicName(StrEnum):
    """Topics of the dashboard. Each event has the same data as the topic's route."""

    OVERVIEW = "overview"  # /v1/overview
    RUNTIME = "runtime"  # /v1/runtime
    QUOTAS = "quotas"  # /v1/quotas
    RUNS = "runs"  # /v1/runs
    DEAD = "dead"  # /v1/overview/dead
    HISTORY = "history"  # /v1/history, the newest points


class Readers:
    """The readers behind the topics of the dashboard."""

    def __init__(self, collection: Collection, systems: Sequence[OpenSystem]) -> None:
        self._database = collection.parts.database
        self._systems = systems
        self.dead = DeadReader(collection, systems)
        self.overview = OverviewReader(collection, systems, self.dead)
        self.runtime = RuntimeStatusReader(collection, systems)
        self.history = History()
        self.histories = HistoryReader(self.history, collection.parts.database)
        self.sampler = Sampler(collection, systems, self.history)
        self._quotas = QuotaRoutes(collection)

    def now(self) -> datetime:
        """Current time of the database's clock."""
        return self._database.clock.now()

    def topics(self) -> Iterator[Topic]:
        """The topics of the dashboard and of all open systems."""
        yield Topic(TopicName.OVERVIEW, self.overview.read, follows_runs=True)
        yield Topic(TopicName.RUNTIME, self.runtime.read)
        yield Topic(TopicName.QUOTAS, self._read_quotas, follows_runs=True)
        yield Topic(TopicName.RUNS, self._read_runs, follows_runs=True)
        yield Topic(TopicName.DEAD, self.dead.read)
        for system in self._systems:
            yield from system.topics()
        yield Topic(TopicName.HISTORY, self._read_history, gap=GAP, silence=GAP)

    async def _read_quotas(self) -> msgspec.Struct:
        return await self._quotas.list_quotas(PoolFilter())

    async def _read_runs(self) -> msgspec.Struct:
        return await run_page(self._database, RunFilter())

    async def _read_history(self) -> HistoryView:
        await self.sampler.sample()
        history = self.history
        return HistoryView(at=self.now(), names=history.names, series=history.newest())
