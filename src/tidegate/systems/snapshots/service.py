"""Assembles the snapshots of one process: readers, refresh workers, prefetch, archive and gauges."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.core.backoff import Backoff
from tidegate.core.clock import milliseconds
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.http.problems import ProblemType, RequestFailed
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
from tidegate.runtime.waiting import TRANSPORT
from tidegate.system import Api, Context, DeadLetterStore, Gauges, HttpContext, OpenSystem, SeriesSource
from tidegate.system import Topic as DashboardTopic
from tidegate.systems.snapshots import metrics
from tidegate.systems.snapshots.archive.opening import is_possible, nightly_archive
from tidegate.systems.snapshots.cache import LocalCache, RefreshFeed, SnapshotCache
from tidegate.systems.snapshots.calls import RefreshCalls, UpstreamCaller
from tidegate.systems.snapshots.committer import RefreshDependencies
from tidegate.systems.snapshots.dead_letters import RefreshDeadLetters, dead_letter_store
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
from tidegate.systems.snapshots.transports.opening import (
    MigratingTransport,
    TransportMigration,
    open_transport,
    warn_of_events_left_behind,
)
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic, Transport
from tidegate.systems.snapshots.valkey_guard import ValkeyGuard

if TYPE_CHECKING:
    from tidegate.systems.snapshots.topics import SnapshotsOverview, SnapshotsOverviewReader

_PER_SECOND = "second"
"""Name of the limiter rule that counts the calls of a second."""


class SnapshotGauges:
    """Gauges computed at scrape time: lag of the topics, dead letters, and calls per second."""

    def __init__(self, transport: Transport, limiter: Limiter) -> None:
        self._transport, self._limiter = transport, limiter

    async def refresh(self) -> None:
        """Compute the gauges; one that cannot be computed becomes NaN."""
        await asyncio.gather(
            compute_gauges("snapshot lag", self._lags, [metrics.CONSUMER_LAG]),
            compute_gauges("snapshot dead letters", self._dead, [metrics.DLQ_MESSAGE_COUNT]),
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


def scheduled_work(parts: Context, requests: Requests, transport: Transport) -> Sequence[DueSource]:
    """Return the due sources of the leader that the settings enable: prefetch, archive and transport migration."""
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
    """The snapshots of one process. Opened by `open_snapshots`.

    Example:
        async with open_snapshots(context, [WeatherKind()]) as snapshots:
            answer = await snapshots.reader.read("weather", "berlin")  # never waits for the upstream
            print(answer.freshness, answer.body)
    """

    parts: Context
    kinds: Mapping[str, SnapshotKind]
    reader: SnapshotReader
    requests: RefreshPublisher
    transport: Transport
    dead: RefreshDeadLetters
    feed: RefreshFeed
    gauges: SnapshotGauges
    limiter: Limiter
    breakers: Sequence[CircuitBreaker]
    """Circuit breakers of this process, one for each server."""
    workers: Mapping[str, Service]
    """Refresh workers; a process that only answers does not run them."""
    recoverable: Sequence[Stream]
    """Streams from which the leader reassigns the events of dead processes."""
    scheduled: Sequence[DueSource]
    """Scheduled work of the leader: prefetch, archive, and migration of the transport."""

    async def refresh(self, kind: str, key: str) -> Outcome:
        """Request a refresh with HIGH priority, however fresh the snapshot is.

        Raises what `SnapshotReader.read` raises, and `Unavailable` if no refresh can be requested now.
        """
        subject, known = self.reader.subject(kind, key), await self.reader.known(kind, key)
        request = RefreshRequest(
            subject=subject,
            priority=Priority.HIGH,
            reason=Reason.USER_REQUEST,
            known_version=known.version,
            upstream_id=known.upstream_id,
        )
        with self.reader.expecting(subject):
            return await self.requests.publish(request)

    def process(self, *, works: bool = True, services: Mapping[str, Service] | None = None) -> Supervisor:
        """Build a process that runs only snapshots; without `works` it has no refresh workers."""
        return build_process(self.parts, [OpenSnapshots(self.parts, self)], works=works, services=services)


class OpenSnapshots(OpenSystem):
    """What snapshots contribute to a process; without a configured kind only their retention rules."""

    def __init__(self, context: Context, snapshots: Snapshots | None) -> None:
        self._context, self.snapshots = context, snapshots
        self._reader: SnapshotsOverviewReader | None = None

    def workers(self) -> Mapping[str, Service]:
        """The refresh workers of this process."""
        return {} if self.snapshots is None else self.snapshots.workers

    def recoverable(self) -> Sequence[RecoverableWork]:
        """Streams of events that the leader reassigns."""
        return () if self.snapshots is None else self.snapshots.recoverable

    def due_sources(self) -> Sequence[DueSource]:
        """Prefetch, archive and migration of the transport."""
        return () if self.snapshots is None else self.snapshots.scheduled

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Retention of the calls per hour of prefetch."""
        database, kept = self._context.database, self._context.section(SnapshotSettings).prefetch.hours_kept
        return [TableRule(database, prefetch_hours, kept, lambda before: [prefetch_hours.c.day < before.date()])]

    def api(self, http: HttpContext) -> Api:
        """The routes under `/v1/snapshots`."""
        if self.snapshots is None:
            return Api(absent={"/v1/snapshots": NO_KINDS})
        from tidegate.systems.snapshots.api.routes import snapshot_api

        return snapshot_api(self.snapshots, self._overview(self.snapshots), http)

    def topics(self) -> Sequence[DashboardTopic]:
        """The dashboard topic `snapshots`; an error that says so if no kind is configured."""

        async def read() -> "SnapshotsOverview":
            if self.snapshots is None:
                raise RequestFailed(ProblemType.NOT_FOUND, NO_KINDS)
            return await self._overview(self.snapshots).read()

        return [DashboardTopic("snapshots", read)]

    def series(self) -> Sequence[SeriesSource]:
        """Calls per second and lags of the topics."""
        if self.snapshots is None:
            return ()
        read = self._overview(self.snapshots).samples
        return [SeriesSource("snapshots", read, self.snapshots.feed, TRANSPORT)]

    def breakers(self) -> Sequence[CircuitBreaker]:
        """The circuit breakers of the Valkey server and the database."""
        return () if self.snapshots is None else self.snapshots.breakers

    def dead_letters(self) -> Sequence[DeadLetterStore]:
        """The store of the refreshes that failed permanently, if snapshots are configured."""
        if self.snapshots is None:
            return ()
        return [dead_letter_store(self.snapshots.dead, self.snapshots.transport)]

    def gauges(self) -> Sequence[Gauges]:
        """Gauges of lags, dead letters and rates."""
        return () if self.snapshots is None else [self.snapshots.gauges]

    def _overview(self, snapshots: Snapshots) -> "SnapshotsOverviewReader":
        """Return the reader that the route and the topic share, with its sample."""
        from tidegate.systems.snapshots.topics import SnapshotsOverviewReader

        if self._reader is None:
            self._reader = SnapshotsOverviewReader(snapshots)
        return self._reader


@asynccontextmanager
async def open_snapshots(parts: Context, kinds: Sequence[SnapshotKind] | None = None) -> AsyncGenerator[Snapshots]:
    """Open snapshots of `kinds`, by default those of the settings, for the length of a block."""
    settings = parts.settings
    named = by_name(configured_kinds(settings) if kinds is None else kinds)
    async with AsyncExitStack() as stack:
        # The stack closes in reverse order: workers' clients and readers first, the transport last.
        transport = open_transport(parts)
        await transport.start()
        stack.push_async_callback(transport.close)
        await warn_of_events_left_behind(parts)
        feed = RefreshFeed(parts.valkey, parts.valkey.unit(_UNIT))
        stack.push_async_callback(feed.close)
        shared = _SharedParts(parts, named, transport, feed)
        stack.push_async_callback(shared.server.close)
        reader = shared.reader()
        await stack.enter_async_context(reader.following())
        workers: dict[str, Service] = {}
        sources: dict[str, Transport] = {"": transport}
        if isinstance(transport, MigratingTransport):
            # During a migration, each priority has a second worker that drains the previous transport.
            sources["-previous"] = transport.previous
        for priority, worker_settings in (
            (Priority.HIGH, settings.section(SnapshotSettings).high),
            (Priority.LOW, settings.section(SnapshotSettings).low),
        ):
            for suffix, source in sources.items():
                # Each worker has as many connections as calls: a request must be sent as soon as its permit is granted.
                most = {
                    "connections": worker_settings.most_in_hand,
                    "connections_per_host": worker_settings.most_in_hand,
                }
                client = UpstreamClient(settings.section(UpstreamSettings).model_copy(update=most), name="snapshots")
                caller = await stack.enter_async_context(client)
                workers[f"refresh-{priority}{suffix}"] = shared.worker(priority, worker_settings, caller, source)
        yield Snapshots(
            parts=parts,
            kinds=named,
            reader=reader,
            requests=shared.requests,
            transport=transport,
            dead=RefreshDeadLetters(transport, shared.requests, shared.coalescer, reader),
            feed=feed,
            gauges=SnapshotGauges(transport, shared.limiter),
            limiter=shared.limiter,
            breakers=shared.breakers,
            workers=workers,
            recoverable=transport.recoverable,
            scheduled=scheduled_work(parts, shared.requests, transport),
        )


class _SharedParts:
    """The parts that readers and workers of one process share."""

    def __init__(
        self, parts: Context, kinds: Mapping[str, SnapshotKind], transport: Transport, feed: RefreshFeed
    ) -> None:
        self._parts, self._kinds, self._transport, self._feed = parts, kinds, transport, feed
        settings = parts.settings
        self._ours: SnapshotSettings = settings.section(SnapshotSettings)
        self._clock = parts.database.clock
        self._of_server = CircuitBreaker("valkey", settings.breaker, state_gauge=metrics.REDIS_CIRCUIT_BREAKER_STATE)
        self.server = ValkeyGuard(parts.valkey, self._of_server, parts.valkey.unit(_UNIT))
        self._of_database = CircuitBreaker("database", settings.breaker, state_gauge=metrics.DB_CIRCUIT_BREAKER_STATE)
        self.coalescer = Coalescer(parts.valkey, settings.coalescer, name=_UNIT)
        self.limiter = Limiter(parts.valkey, parts.valkey.unit("snapshots-limiter"), settings=settings.limiter)
        self.requests = RefreshPublisher(self.coalescer, transport, self.server, clock=self._clock)
        self._cache = SnapshotCache(parts.valkey, keep=self._ours.cache_for)

    @property
    def breakers(self) -> Sequence[CircuitBreaker]:
        """The circuit breakers of the Valkey server and the database."""
        return self._of_server, self._of_database

    def reader(self) -> SnapshotReader:
        """Build the reader of this process."""
        ours = self._ours
        local = LocalCache(most_bytes=ours.local_cache_bytes, keep_ms=milliseconds(ours.local_cache_for))
        lookup = SnapshotLookup(
            local, self._cache, self._parts.database, server=self.server, sql_breaker=self._of_database
        )
        rates = [rate.per_second for rate in self._parts.settings.limiter.rates]
        background_requests = BackgroundRequests(
            self.requests, self._transport, calls_per_second=min(rates, default=100.0)
        )
        reader = SnapshotReader(
            self._kinds,
            lookup,
            background_requests,
            self._feed,
            activity=ReadActivity(self._parts.database, self._clock),
            clock=self._clock,
            missing_for=ours.missing_for,
            failed_for=ours.failed_for,
        )
        self.server.on_return.append(reader.server_returned)
        return reader

    def worker(
        self, priority: Priority, worker_settings: WorkerSettings, caller: UpstreamCaller, source: Transport
    ) -> RefreshWorker:
        """Build the worker for the events of `source`."""
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
        dependencies = RefreshDependencies(
            database=self._parts.database,
            breaker=self._of_database,
            transport=self._transport,
            coalescer=self.coalescer,
            cache=self._cache,
            feed=self._feed,
            clock=self._clock,
            lease_lasted_since=self._parts.membership.lasted_since,
            write_within=ours.write_within,
            keeps_history=ours.archive.keep_history,
        )
        name = WorkerName(owner=self._parts.owner, priority=priority, most_deliveries=ours.most_deliveries)
        return RefreshWorker(name, worker_settings, calls, dependencies, source)
