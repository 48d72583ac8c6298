"""What every process that collects has in hand, whatever its sources are and whoever makes the calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.engine.change_feed import ChangeFeed
from tidegate.engine.collector import Collector
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.schedules.due import DueSchedules, PoolFor
from tidegate.engine.schedules.store import Schedules
from tidegate.engine.schedules.triggers import Triggers
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source
from tidegate.process import build_process
from tidegate.runtime.delivery import Handler
from tidegate.runtime.retention import RetentionRule
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import DueSource
from tidegate.storage.documents import Documents
from tidegate.system import Context, Gauges, OpenSystem


@dataclass(frozen=True, kw_only=True)
class Addition:
    """What a source brings along beside its jobs."""

    services: Mapping[str, Service] = field(default_factory=dict[str, Service])
    """Of every process."""
    duties: Mapping[str, Service] = field(default_factory=dict[str, Service])
    """Of the leader."""
    sources: Sequence[DueSource] = ()
    """Of the leader's timekeeper."""
    on_death: Sequence[Callable[[], object]] = ()
    """Told when something may have been lost."""

    def joined(self, other: "Addition") -> "Addition":
        """Both together."""
        return Addition(
            services={**self.services, **other.services},
            duties={**self.duties, **other.duties},
            sources=[*self.sources, *other.sources],
            on_death=[*self.on_death, *other.on_death],
        )


@dataclass(frozen=True, kw_only=True)
class Collecting:
    """A process's hold on collection."""

    parts: Context
    documents: Documents
    collector: Collector
    bulletin: ChangeFeed
    """Tells whoever watches a run that it moved, in this process or another."""
    schedules: Schedules
    """Who begins runs by the clock; the leader keeps their time."""
    due_schedules: DueSchedules
    addition: Addition = Addition()

    @property
    def orchestrator(self) -> Orchestrator:
        """The door through which runs begin."""
        return self.collector.orchestrator

    def opened(self) -> OpenSystem:
        """What it contributes to a process."""
        return OpenEngine(self)

    def process(
        self,
        *,
        works: bool = True,
        services: Mapping[str, Service] | None = None,
        systems: Sequence[OpenSystem] = (),
    ) -> Supervisor:
        """A process of the deployment, with workers where it `works`, with further `systems` and `services`."""
        return build_process(self.parts, [self.opened(), *systems], works=works, services=services)


class OpenEngine(OpenSystem):
    """What collection contributes to a process, whatever its sources are."""

    def __init__(self, collecting: Collecting) -> None:
        self._collecting = collecting

    def workers(self) -> Mapping[str, Service]:
        """Worker and committer."""
        return self._collecting.collector.services

    def services(self) -> Mapping[str, Service]:
        """What the sources need in every process."""
        return self._collecting.addition.services

    def duties(self) -> Mapping[str, Service]:
        """Recovery of runs, and what the sources need in the leader."""
        return {"recovery": self._collecting.collector.duty, **self._collecting.addition.duties}

    def due_sources(self) -> Sequence[DueSource]:
        """Schedules, and what the sources need."""
        return [self._collecting.due_schedules, *self._collecting.addition.sources]

    def event_handlers(self) -> Sequence[Handler]:
        """Ends of runs."""
        return self._collecting.collector.handlers

    def on_loss(self) -> Sequence[Callable[[], object]]:
        """Enqueue everything unfinished again."""
        return [self._collecting.collector.duty.notify, *self._collecting.addition.on_death]

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Runs, cursors and firings."""
        from tidegate.engine.retention import rules

        parts = self._collecting.parts
        kept = parts.settings.retention
        return rules(parts.database, runs=kept.runs, cursors=kept.cursors, firings=kept.firings)

    def gauges(self) -> Sequence[Gauges]:
        """Jobs, streams, timers and the gate."""
        from tidegate.engine.reports.gauges import Gauges as EngineGauges

        parts = self._collecting.parts
        return [EngineGauges(parts.database, parts.gate, parts.timers, [parts.jobs, parts.alarms])]


def put_schedules_together(
    parts: Context, collector: Collector, sources: Sequence[Source], pool_for: PoolFor
) -> tuple[Schedules, DueSchedules]:
    """The door to schedules, and who begins their runs; `pool_for` tells which pool serves a user of a source."""
    by_name, settings = {source.name: source for source in sources}, parts.settings.section(CollectSettings)
    due = DueSchedules(
        parts.database,
        by_name,
        pool_for=pool_for,
        offer=collector.orchestrator.offer,
        on_doubt=collector.duty.notify,
        settings=settings,
    )
    triggers = Triggers(
        parts.database, by_name, pool_for=pool_for, orchestrator=collector.orchestrator, settings=settings
    )
    return Schedules(parts.database, by_name, parts.timers.wakeup, triggers.fire), due
