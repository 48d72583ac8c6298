"""What every process that collects has in hand, whatever its sources are and whoever makes the calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.app.parts import Parts
from tidegate.app.process import build_process
from tidegate.engine.change_feed import Bulletin
from tidegate.engine.collector import Collector
from tidegate.engine.due_schedules import DueSchedules, PoolFor
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.schedules import Schedules
from tidegate.engine.source import Source
from tidegate.engine.triggers import Triggers
from tidegate.primitives.stream import Stream
from tidegate.runtime.delivery import Handler
from tidegate.runtime.recoverer import Estate
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import DueSource
from tidegate.storage.documents import DocumentStore


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

    parts: Parts
    documents: DocumentStore
    collector: Collector
    bulletin: Bulletin
    """Tells whoever watches a run that it moved, in this process or another."""
    schedules: Schedules
    """Who begins runs by the clock; the leader keeps their time."""
    due_schedules: DueSchedules
    addition: Addition = Addition()

    @property
    def orchestrator(self) -> Orchestrator:
        """The door through which runs begin."""
        return self.collector.orchestrator

    def process(
        self,
        *,
        works: bool = True,
        services: Mapping[str, Service] | None = None,
        streams: Sequence[Stream] = (),
        sources: Sequence[DueSource] = (),
        handlers: Sequence[Handler] = (),
        duties: Mapping[str, Service] | None = None,
        estates: Sequence[Estate] = (),
    ) -> Supervisor:
        """A process of the deployment, with workers where it `works`, and with `services` of the caller's.

        From `streams` and `estates` the leader takes what the dead held; it keeps the time of `sources`, delivers
        events to `handlers`, and has `duties` besides.
        """
        ours, more = self.collector.services if works else {}, self.addition
        return build_process(
            self.parts,
            handlers=[*self.collector.handlers, *handlers],
            services={**ours, **more.services, **(services or {})},
            sources=[self.due_schedules, *more.sources, *sources],
            duties={"recovery": self.collector.duty, **more.duties, **(duties or {})},
            on_death=[self.collector.duty.ring, *more.on_death],
            streams=streams,
            estates=estates,
        )


def put_schedules_together(
    parts: Parts, collector: Collector, sources: Sequence[Source], pool_for: PoolFor
) -> tuple[Schedules, DueSchedules]:
    """The door to schedules, and who begins their runs; `pool_for` tells which pool serves a user of a source."""
    by_name, settings = {source.name: source for source in sources}, parts.settings.collect
    due = DueSchedules(
        parts.database,
        by_name,
        pool_for=pool_for,
        offer=collector.orchestrator.offer,
        on_doubt=collector.duty.ring,
        settings=settings,
    )
    triggers = Triggers(
        parts.database, by_name, pool_for=pool_for, orchestrator=collector.orchestrator, settings=settings
    )
    return Schedules(parts.database, by_name, parts.timers.doorbell, triggers.fire), due
