"""Snapshots, put together: the same in a process that answers, in one that refreshes, and in a command.

Figures of the whole deployment, found out when somebody asks for the metrics.

What the leader does for snapshots by the clock: asks for what is due, and moves old history to the archive.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.core.backoff import Backoff
from tidegate.core.clock import milliseconds
from tidegate.core.priority import Priority
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.http.problems import ProblemType, Trouble
from tidegate.primitives.circuit_breaker import CircuitBreaker
from tidegate.primitives.coalescer import Coalescer, Outcome
from tidegate.primitives.limiter import Limiter
from tidegate.primitives.stream import Stream
from tidegate.process import build_process
from tidegate.runtime.recoverer import RecoverableWork
from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.runtime.scrape_gauges import compute_gauges
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import DueSource
from tidegate.system import Api, Context, DeadLetterCount, Gauges, HttpContext, OpenSystem
from tidegate.system import Topic as DashboardTopic
from tidegate.systems.snapshots.archive.opening import is_possible, nightly_archive
from tidegate.systems.snapshots.cache import LocalCache, RefreshFeed, SnapshotCache
from tidegate.systems.snapshots.calls import RefreshCalls, UpstreamCaller
from tidegate.systems.snapshots.committer import RefreshDependencies
from tidegate.systems.snapshots.dead_letters import RefreshDeadLetters
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.kinds import NO_KINDS, by_name, configured_kinds
from tidegate.systems.snapshots.lookup import SnapshotLookup
from tidegate.systems.snapshots.model import SnapshotKind
from tidegate.systems.snapshots.prefetch.budget import WorkerBacklog
from tidegate.systems.snapshots.prefetch.planner import PrefetchPlanner, Requests
from tidegate.systems.snapshots.reads import ReadActivity, SnapshotReader
from tidegate.systems.snapshots.refresh_worker import RefreshWorker, WorkerName
from tidegate.systems.snapshots.requests import BackgroundRequests, RefreshPublisher, RefreshRequest
from tidegate.systems.snapshots.settings import SnapshotSettings, WorkerSettings
from tidegate.systems.snapshots.tables import prefetch_hours
from tidegate.systems.snapshots.transports.migration import MigratingTransport, TransportMigration
from tidegate.systems.snapshots.transports.opening import open_transport, warn_of_events_left_behind
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic, Transport
from tidegate.systems.snapshots.valkey_guard import ValkeyGuard

if TYPE_CHECKING:
    from tidegate.systems.snapshots.topics import SnapshotsOverview, SnapshotsOverviewReader

_PER_SECOND = "second"
"""The rule of the limiter that counts the calls of a second."""


class SnapshotGauges:
    """Lag of the topics, dead letters, and calls per second."""

    def __init__(self, transport: Transport, limiter: Limiter) -> None:
        self._transport, self._limiter = transport, limiter

    async def refresh(self) -> None:
        """Find out; what cannot be found out is shown as not a number."""
        await asyncio.gather(
            compute_gauges("snapshot lag", self._lags, [metrics.CONSUMER_LAG]),
            compute_gauges("snapshot letters", self._dead, [metrics.DLQ_MESSAGE_COUNT]),
            compute_gauges("snapshot calls", self._calls, [metrics.RATE_LIMITER_RPS]),
        )

    async def _lags(self) -> None:
        for topic, group in GROUPS.items():
            metrics.CONSUMER_LAG.labels(topic, group).set(await self._transport.lag(topic, group))

    async def _dead(self) -> None:
        metrics.DLQ_MESSAGE_COUNT.set(await self._transport.dead_count())

    async def _calls(self) -> None:
        for usage in (await self._limiter.status()).usage:
            if usage.name == _PER_SECOND:
                metrics.RATE_LIMITER_RPS.set(usage.used)


log = get_logger(__name__)


def upkeep_of_snapshots(parts: Context, requests: Requests, transport: Transport) -> Sequence[DueSource]:
    """What the settings want of it: sources for the leader's timekeeper."""
    settings = parts.settings
    sources: list[DueSource] = [TransportMigration(transport)] if isinstance(transport, MigratingTransport) else []
    if settings.section(SnapshotSettings).prefetch.enabled:
        backlog = WorkerBacklog(lambda: transport.lag(RefreshTopic.LOW, GROUPS[RefreshTopic.LOW]))
        sources.append(PrefetchPlanner(parts.database, requests, settings.section(SnapshotSettings).prefetch, backlog))
    if settings.section(SnapshotSettings).archive.enabled:
        if is_possible():
            sources.append(nightly_archive(settings, parts.database))
        else:
            log.warning("archive.left_out", remedy='pip install "tidegate[archive]"')
    return sources


_UNIT = "snapshots"


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    """A process's hold on snapshots."""

    parts: Context
    kinds: Mapping[str, SnapshotKind]
    reader: SnapshotReader
    requests: RefreshPublisher
    transport: Transport
    dead: RefreshDeadLetters
    news: RefreshFeed
    gauges: SnapshotGauges
    limiter: Limiter
    breakers: Sequence[CircuitBreaker]
    """Of this process: one for each server that reads and writes depend on."""
    workers: Mapping[str, Service]
    """Those that refresh; a process that only answers leaves them out."""
    recoverable: Sequence[Stream]
    """From which the leader takes what dead processes held."""
    upkeep: Sequence[DueSource]
    """What the leader does by the clock: asks for subjects that are due, and moves old history to the archive."""

    async def refresh(self, kind: str, key: str) -> Outcome:
        """Have a subject refreshed, however fresh it is: before everything that nobody waits for.

        Raises what `SnapshotReader.read` raises, and `Unavailable` where it cannot be asked for now.
        """
        subject, known = self.reader.subject(kind, key), await self.reader.known(kind, key)
        wish = RefreshRequest(
            subject=subject,
            priority=Priority.HIGH,
            reason=Reason.USER_REQUEST,
            known_version=known.version,
            upstream_id=known.upstream_id,
        )
        with self.reader.expecting(subject):
            return await self.requests.ask(wish)

    def process(self, *, works: bool = True, services: Mapping[str, Service] | None = None) -> Supervisor:
        """A process of a deployment that does nothing but snapshots."""
        return build_process(self.parts, [OpenSnapshots(self.parts, self)], works=works, services=services)


class OpenSnapshots(OpenSystem):
    """What snapshots contribute to a process; only the rule of their tables where no kind is configured."""

    def __init__(self, context: Context, snapshots: Snapshots | None) -> None:
        self._context, self.snapshots = context, snapshots
        self._reader: SnapshotsOverviewReader | None = None

    def workers(self) -> Mapping[str, Service]:
        """Workers that refresh."""
        return {} if self.snapshots is None else self.snapshots.workers

    def recoverable(self) -> Sequence[RecoverableWork]:
        """Refreshes that dead processes held."""
        return () if self.snapshots is None else self.snapshots.recoverable

    def due_sources(self) -> Sequence[DueSource]:
        """Prefetching and the archive."""
        return () if self.snapshots is None else self.snapshots.upkeep

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Hours of prefetching."""
        database, kept = self._context.database, self._context.section(SnapshotSettings).prefetch.hours_kept
        return [TableRule(database, prefetch_hours, kept, lambda before: [prefetch_hours.c.day < before.date()])]

    def api(self, http: HttpContext) -> Api:
        """`/v1/snapshots`."""
        if self.snapshots is None:
            return Api(absent={"/v1/snapshots": NO_KINDS})
        from tidegate.systems.snapshots.api.routes import snapshot_api

        return snapshot_api(self.snapshots, self._overview(self.snapshots), http)

    def topics(self) -> Sequence[DashboardTopic]:
        """`/v1/snapshots/overview`. Where no kind is configured, those who watch it learn that."""

        async def read() -> "SnapshotsOverview":
            if self.snapshots is None:
                raise Trouble(ProblemType.NOT_FOUND, NO_KINDS)
            return await self._overview(self.snapshots).read()

        return [DashboardTopic("snapshots", read)]

    def dead_letters(self) -> Sequence[DeadLetterCount]:
        """Refreshes that failed permanently."""
        if self.snapshots is None:
            return ()
        transport = self.snapshots.transport

        async def count() -> Mapping[str, int]:
            return {"": await transport.dead_count()}

        return [DeadLetterCount("snapshots", "snapshots", count, server="the transport of snapshots")]

    def gauges(self) -> Sequence[Gauges]:
        """Lags and rates."""
        return () if self.snapshots is None else [self.snapshots.gauges]

    def _overview(self, snapshots: Snapshots) -> "SnapshotsOverviewReader":
        """One for the route and the topic, so that they share a sample."""
        from tidegate.systems.snapshots.topics import SnapshotsOverviewReader

        if self._reader is None:
            self._reader = SnapshotsOverviewReader(snapshots)
        return self._reader


@asynccontextmanager
async def open_snapshots(parts: Context, kinds: Sequence[SnapshotKind] | None = None) -> AsyncGenerator[Snapshots]:
    """Everything that snapshots of `kinds` need, for the length of a block; by default those of the settings."""
    settings = parts.settings
    named = by_name(configured_kinds(settings) if kinds is None else kinds)
    async with AsyncExitStack() as stack:
        transport = open_transport(parts)
        await transport.start()
        stack.push_async_callback(transport.close)
        await warn_of_events_left_behind(parts)
        news = RefreshFeed(parts.valkey, parts.valkey.unit(_UNIT))
        stack.push_async_callback(news.close)
        base = _Parts(parts, named, transport, news)
        stack.push_async_callback(base.server.close)
        reader = base.reader()
        await stack.enter_async_context(reader.following())
        workers: dict[str, Service] = {}
        sources: dict[str, Transport] = {"": transport}
        if isinstance(transport, MigratingTransport):
            sources["-previous"] = transport.previous
        for priority, lane in (
            (Priority.HIGH, settings.section(SnapshotSettings).high),
            (Priority.LOW, settings.section(SnapshotSettings).low),
        ):
            for suffix, source in sources.items():
                # Each has connections of its own, as many as calls: a permit is spent when the call leaves, at once.
                most = {"connections": lane.most_in_hand, "connections_per_host": lane.most_in_hand}
                client = UpstreamClient(settings.section(UpstreamSettings).model_copy(update=most), name="snapshots")
                caller = await stack.enter_async_context(client)
                workers[f"refresh-{priority}{suffix}"] = base.worker(priority, lane, caller, source)
        yield Snapshots(
            parts=parts,
            kinds=named,
            reader=reader,
            requests=base.requests,
            transport=transport,
            dead=RefreshDeadLetters(transport, base.requests, base.coalescer, reader),
            news=news,
            gauges=SnapshotGauges(transport, base.limiter),
            limiter=base.limiter,
            breakers=base.breakers,
            workers=workers,
            recoverable=transport.recoverable,
            upkeep=upkeep_of_snapshots(parts, base.requests, transport),
        )


class _Parts:
    """What readers and workers of one process share."""

    def __init__(
        self, parts: Context, kinds: Mapping[str, SnapshotKind], transport: Transport, news: RefreshFeed
    ) -> None:
        self._parts, self._kinds, self._transport, self._news = parts, kinds, transport, news
        settings = parts.settings
        self._ours: SnapshotSettings = settings.section(SnapshotSettings)
        self._clock = parts.database.clock
        self._of_server = CircuitBreaker("valkey", settings.breaker, state_gauge=metrics.REDIS_CIRCUIT_BREAKER_STATE)
        self.server = ValkeyGuard(parts.valkey, self._of_server, parts.valkey.unit(_UNIT))
        self._of_database = CircuitBreaker("database", settings.breaker, state_gauge=metrics.DB_CIRCUIT_BREAKER_STATE)
        self.coalescer = Coalescer(parts.valkey, settings.coalescer, name=_UNIT)
        self.limiter = Limiter(parts.valkey, parts.valkey.unit("snapshots-limiter"), settings=settings.limiter)
        self.requests = RefreshPublisher(self.coalescer, transport, self.server, clock=self._clock)
        self._shelf = SnapshotCache(parts.valkey, keep=self._ours.cache_for)

    @property
    def breakers(self) -> Sequence[CircuitBreaker]:
        """Both."""
        return self._of_server, self._of_database

    def reader(self) -> SnapshotReader:
        """Answers."""
        ours = self._ours
        local = LocalCache(most_bytes=ours.local_cache_bytes, keep_ms=milliseconds(ours.local_cache_for))
        lookup = SnapshotLookup(
            local, self._shelf, self._parts.database, server=self.server, sql_breaker=self._of_database
        )
        rates = [rate.per_second for rate in self._parts.settings.limiter.rates]
        wanting = BackgroundRequests(self.requests, self._transport, calls_per_second=min(rates, default=100.0))
        reader = SnapshotReader(
            self._kinds,
            lookup,
            wanting,
            self._news,
            activity=ReadActivity(self._parts.database, self._clock),
            clock=self._clock,
            missing_for=ours.missing_for,
            failed_for=ours.failed_for,
        )
        self.server.on_return.append(reader.server_returned)
        return reader

    def worker(
        self, priority: Priority, lane: WorkerSettings, caller: UpstreamCaller, source: Transport
    ) -> RefreshWorker:
        """Refreshes what `source` brings."""
        ours = self._ours
        calls = RefreshCalls(
            self._kinds,
            caller=caller,
            limiter=self.limiter,
            coalescer=self.coalescer,
            tries=ours.tries,
            most_redirects=self._parts.settings.section(UpstreamSettings).most_redirects,
            pauses=Backoff(first=ours.first_pause, most=ours.first_pause * 16),
        )
        ground = RefreshDependencies(
            database=self._parts.database,
            breaker=self._of_database,
            transport=self._transport,
            coalescer=self.coalescer,
            shelf=self._shelf,
            news=self._news,
            clock=self._clock,
            lease_lasted_since=self._parts.membership.lasted_since,
            write_within=ours.write_within,
            keeps_history=ours.archive.keep_history,
        )
        name = WorkerName(owner=self._parts.owner, priority=priority, most_deliveries=ours.most_deliveries)
        return RefreshWorker(name, lane, calls, ground, source)
