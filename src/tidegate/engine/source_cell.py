"""Opens a source in this process: its collector, credentials and schedules, in the cell of the source.

Sources of systems, of the setting `sources` and of programs are all opened here. Their plug-ins (`SourcePlugin`)
define the differences.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.engine.calls import CallRoute, Calls, Secrets, UpstreamCalls
from tidegate.engine.cells import CellService, cell_context
from tidegate.engine.change_feed import RunChangeFeed
from tidegate.engine.commit_batch import CommitPolicy, EffectWriter
from tidegate.engine.committer import Committer, Moved
from tidegate.engine.completion import Completion, Finalizer, UnservedRuns
from tidegate.engine.credentials import CredentialManager
from tidegate.engine.credentials.memory_tokens import EnvironmentToken
from tidegate.engine.credentials.opening import open_vault
from tidegate.engine.credentials.vault import RedirectCipher
from tidegate.engine.gate_sync import ExcludedCredentials, Recovery, RecoveryService, exclude_none
from tidegate.engine.orchestrator import Orchestrator, Trigger
from tidegate.engine.reports.history_points import history_rule
from tidegate.engine.retention import rules
from tidegate.engine.runs import RunActive
from tidegate.engine.schedules.due import DueSchedules, Triggers
from tidegate.engine.schedules.store import Schedules
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source, Subject
from tidegate.engine.source_addresses import AddressedSource, SourceAddressConflict, register_source_address
from tidegate.engine.source_plugin import CallCredentials, SourceParts, SourcePlugin
from tidegate.engine.sqs.opening import Aws, open_aws
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.redirects import MOST_REDIRECTS
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.engine.worker import Worker
from tidegate.primitives.gate import Clearances, Gate
from tidegate.primitives.stream import MessageSource, Stream, TicketedStream
from tidegate.process import build_process
from tidegate.runtime.delivery import Handler
from tidegate.runtime.retention import RetentionRule
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import DueSource
from tidegate.storage.documents import Documents
from tidegate.storage.sql import Database
from tidegate.system import Context, OpenSystem


@dataclass(frozen=True)
class CollectDependencies:
    """The servers and streams that collection uses."""

    database: Database
    gate: Gate
    jobs: Stream
    owner: str
    documents: Documents


class Collector:
    """The orchestrator, the worker services and the recovery service for some sources.

    `caller` and `secrets` are used for every source without a route in `routes`. `writers`, by source name, write in
    the transaction that ends jobs. For the sources in `records_claims`, an execution is recorded
    when it begins, and not only when it ends. `excluded` returns
    the credentials that must not make the call of a job. `on_moved` is called after each commit with the ids of the
    runs whose jobs or counters changed in this process.
    """

    def __init__(
        self,
        dependencies: CollectDependencies,
        sources: Sequence[Source],
        *,
        caller: UpstreamCalls,
        secrets: Secrets,
        register_credentials: Callable[[], Awaitable[None]],
        finalizers: Sequence[Finalizer] = (),
        after_offer: Callable[[str], Awaitable[None]] | None = None,
        routes: Mapping[str, CallRoute] | None = None,
        writers: Mapping[str, EffectWriter] | None = None,
        records_claims: Collection[str] = (),
        on_moved: Moved = lambda _: None,
        at_once: int = 200,
        intake: MessageSource | None = None,
        settings: CollectSettings | None = None,
        most_redirects: int = MOST_REDIRECTS,
        redirects: RedirectCipher | None = None,
        excluded: ExcludedCredentials = exclude_none,
    ) -> None:
        settings = settings or CollectSettings()
        by_name = {source.name: source for source in sources}
        policy = CommitPolicy(
            planning={name: source.planning_kinds for name, source in by_name.items()},
            writers=writers or {},
            records_claims=frozenset(records_claims),
            max_attempts=settings.max_attempts,
        )
        database, gate = dependencies.database, dependencies.gate
        recovery, consumer = (
            Recovery(database, gate, sources=by_name, excluded=excluded),
            intake or dependencies.jobs.consumer(dependencies.owner),
        )
        committer = Committer(
            database,
            gate,
            dependencies.documents,
            consumer,
            recovery,
            policy=policy,
            pauses=settings.pauses,
            on_moved=on_moved,
            excluded=excluded,
        )
        calls = Calls(
            by_name,
            CallRoute(caller, secrets),
            database.clock,
            routes=routes,
            settings=settings,
            most_redirects=most_redirects,
            redirects=redirects,
            keep=committer.keep,
            clearances=Clearances(gate),
        )
        worker = Worker(consumer, committer, calls, gate=gate, recovery=recovery, at_once=at_once)
        self.orchestrator = Orchestrator(
            database, gate, by_name, after_offer, on_moved=on_moved, settings=settings, excluded=excluded
        )
        self.recovery_service = RecoveryService(recovery, register_credentials)
        """Runs in the leader; `notify` requests a recovery after the death of a process."""
        completion = Completion(
            database,
            by_name,
            finalizers,
            planning=policy.planning,
            on_moved=on_moved,
            attempts=settings.completion_attempts,
        )
        self.handlers: Sequence[Handler] = completion.handlers
        self.services: Mapping[str, Service] = {"committer": committer, "worker": worker}
        """In this order, because the worker stops before the committer, which writes its last results."""


@dataclass(frozen=True, kw_only=True)
class SourceCell:
    """One source in this process; `parts` is the context of its cell."""

    parts: Context
    plugin: SourcePlugin
    extra: SourceParts
    documents: Documents
    collector: Collector
    change_feed: RunChangeFeed
    """Reports changes of runs to watchers in all processes."""
    credentials: CallCredentials
    stored: CredentialManager | None
    """The stored credentials; None if the source uses others."""
    token: EnvironmentToken | None
    """The token of the environment, if there is one."""
    schedules: Schedules
    due_schedules: DueSchedules
    aws: Aws

    @property
    def source(self) -> Source:
        """The source that this cell runs."""
        return self.plugin.source

    @property
    def credential_manager(self) -> CredentialManager:
        """The stored credentials. Raises `InvalidArgument` if the source uses others."""
        if self.stored is None:
            raise InvalidArgument("source", self.plugin.name, "has no stored credentials")
        return self.stored

    @property
    def orchestrator(self) -> Orchestrator:
        """Starts, cancels and retries runs of the source."""
        return self.collector.orchestrator

    async def require_credentials(self) -> None:
        """Raise `InvalidSettings` if this process has no credential for any call.

        Starts to use the token of the environment, and passes on the error of an unavailable upstream.
        """
        if self.token is not None:
            await self.token.use()
        if self.stored is not None:
            await self.stored.require_any()

    async def begin(self, subject: Subject, *, trigger: Trigger = Trigger.MANUAL) -> int:
        """Start a run and return its id. Raises `RunActive` and `NoCredential`."""
        pool = await self.credentials.pool_for(subject.user_id)
        return await self.orchestrator.begin(self.plugin.name, subject, pool=pool, trigger=trigger)

    async def begin_or_resume(self, subject: Subject, *, pool: str | None = None) -> int:
        """Start a run, or resume the active run of the user; returns its id.

        The jobs of an active run are enqueued again, because the process that started it may have died before.
        """
        pool = await self.credentials.pool_for(subject.user_id) if pool is None else pool
        try:
            return await self.orchestrator.begin(self.plugin.name, subject, pool=pool)
        except RunActive as active:
            await self.resume(active.run_id)
            return active.run_id

    async def resume(self, run_id: int) -> None:
        """Enqueue the unfinished jobs of a run."""
        await Recovery(self.parts.database, self.parts.gate, sources=[self.plugin.name]).offer_run(run_id)

    def process(
        self,
        *,
        works: bool = True,
        services: Mapping[str, Service] | None = None,
        systems: Sequence[OpenSystem] = (),
    ) -> Supervisor:
        """Build a process of the cell with further `systems` and `services`; with workers if `works` is set."""
        return build_process(self.parts, [_OpenCell(self, prunes=True), *systems], works=works, services=services)

    def service(self, *, works: bool) -> Service:
        """The process of the cell as a service of a process with several cells, which also deletes old rows."""
        return CellService(partial(build_process, self.parts, [_OpenCell(self, prunes=False)], works=works))


class _OpenCell(OpenSystem):
    """What a source contributes to the processes of its cell."""

    def __init__(self, cell: SourceCell, *, prunes: bool) -> None:
        self._cell, self._prunes = cell, prunes

    def workers(self) -> Mapping[str, Service]:
        return self._cell.collector.services

    def services(self) -> Mapping[str, Service]:
        token = {} if self._cell.token is None else {"environment token": self._cell.token}
        return {**self._cell.extra.services, **self._cell.aws.services, **token}

    def leader_services(self) -> Mapping[str, Service]:
        return {"recovery": self._cell.collector.recovery_service, **self._cell.extra.leader_services}

    def due_sources(self) -> Sequence[DueSource]:
        return [self._cell.due_schedules, *self._cell.aws.sources]

    def event_handlers(self) -> Sequence[Handler]:
        return self._cell.collector.handlers

    def on_loss(self) -> Sequence[Callable[[], object]]:
        return [self._cell.collector.recovery_service.notify, *self._cell.extra.on_loss]

    def retention_rules(self) -> Sequence[RetentionRule]:
        return [*engine_rules(self._cell.parts), *self._cell.extra.retention_rules] if self._prunes else []


def engine_rules(context: Context) -> list[RetentionRule]:
    """How long runs, cursors and firings of all sources are kept, and the points of charts."""
    kept = context.settings.retention
    return [
        *rules(context.database, runs=kept.runs, cursors=kept.cursors, firings=kept.firings),
        history_rule(context.database, kept.history),
    ]


@asynccontextmanager
async def open_cell(
    context: Context,
    plugin: SourcePlugin,
    *,
    client: UpstreamClient,
    documents: Documents,
    change_feed: RunChangeFeed,
    token: str | None = None,
) -> AsyncGenerator[SourceCell]:
    """Open a source. `token` is used while no stored credential serves all users.

    Raises `InvalidSettings` if the database has data of the source from another address.
    """
    cell, settings, name = cell_context(context, plugin.name), context.settings, plugin.name
    async with AsyncExitStack() as stack:
        await _register_address(cell, plugin)  # before a credential is stored for the wrong address
        unserved = UnservedRuns(cell, name, on_moved=change_feed.moved)
        extra = await stack.enter_async_context(plugin.open(cell, client, documents))
        manager, given = None, None
        if extra.credentials is None:
            manager = build_credential_manager(cell, plugin, client, on_unserved=unserved.check)
            stack.push_async_callback(manager.close)
            if token:
                given = EnvironmentToken(manager, token, on_used=lambda: collector.recovery_service.notify())  # noqa: PLW0108 - made below
        credentials: CallCredentials = extra.credentials or manager  # pyright: ignore[reportAssignmentType] - one of both

        async def register() -> None:
            await credentials.register()
            # While the token of the environment is awaited, runs without a credential wait for it.
            if manager is not None and (given is None or not given.is_awaited):
                await unserved.check_all()

        async def pool_for(_source: str, user_id: str) -> str:
            return await credentials.pool_for(user_id)

        aws = await stack.enter_async_context(_open_task_queue(cell, name))
        collector = Collector(
            CollectDependencies(cell.database, cell.gate, cell.jobs, cell.owner, documents),
            [plugin.source],
            caller=client,
            secrets=credentials,
            register_credentials=register,
            finalizers=extra.finalizers,
            after_offer=None if manager is None else unserved.check,
            routes={} if extra.route is None else {name: extra.route},
            writers={} if extra.writer is None else {name: extra.writer},
            records_claims={name} if extra.records_claims else (),
            on_moved=change_feed.moved,
            settings=settings.section(CollectSettings),
            intake=aws.intake,
            most_redirects=settings.section(UpstreamSettings).most_redirects,
            redirects=RedirectCipher(open_vault(settings, cell.database).derive),
            excluded=extra.excluded or exclude_none,
        )
        common: dict[str, Any] = {"pool_for": pool_for, "settings": settings.section(CollectSettings)}
        sources = {name: plugin.source}
        triggers = Triggers(cell.database, sources, orchestrator=collector.orchestrator, **common)
        yield SourceCell(
            parts=cell,
            plugin=plugin,
            extra=extra,
            documents=documents,
            collector=collector,
            change_feed=change_feed,
            credentials=credentials,
            stored=manager,
            token=given,
            schedules=Schedules(cell.database, sources, cell.timers.wakeup, triggers.fire),
            due_schedules=DueSchedules(
                cell.database,
                sources,
                offer=collector.orchestrator.offer,
                on_unknown_outcome=collector.recovery_service.notify,
                **common,
            ),
            aws=aws,
        )


def build_credential_manager(
    cell: Context, plugin: SourcePlugin, client: UpstreamClient, *, on_unserved: Callable[[str], Awaitable[None]]
) -> CredentialManager:
    """Build the stored credentials of a source, which are registered in the gate of its cell.

    `on_unserved` is called with a pool that has no valid credential left.
    """
    return CredentialManager(
        cell.database,
        cell.gate,
        open_vault(cell.settings, cell.database),
        plugin.authority(client),
        source=plugin.name,
        limits=cell.settings.gate,
        on_unserved=on_unserved,
        before_registration=Recovery(cell.database, cell.gate, sources=[plugin.name]).remind_gate,
    )


@asynccontextmanager
async def _open_task_queue(cell: Context, source: str) -> AsyncGenerator[Aws]:
    """Open the SQS queue through which jobs of the source `collect.source` reach workers."""
    if source != cell.section(CollectSettings).source:
        yield Aws()
        return
    tasks_only = cell.section(AwsSettings).model_copy(update={"trigger_queue_url": None})
    async with open_aws(tasks_only, TicketedStream(cell.valkey, cell.jobs), cell.owner) as aws:
        yield aws


async def _register_address(cell: Context, plugin: SourcePlugin) -> None:
    """Refuse a second address of the source: two upstreams in one database would overwrite each other's items."""
    source = plugin.source
    if not isinstance(source, AddressedSource):
        return
    try:
        await cell.database.transaction(register_source_address, plugin.name, source.address, plugin.moved_from)
    except SourceAddressConflict as other:
        raise InvalidSettings(
            f"{plugin.name}.api_url is {other.wanted}, but the data in {cell.database.name} was collected from "
            f"{other.present}. Both in one database would overwrite each other: use another data folder "
            "(TIDEGATE_DATA_DIR) or database. If it is the same upstream under a new address, set "
            f"TIDEGATE_{plugin.name.upper()}__MOVED_FROM to the old one"
        ) from None
