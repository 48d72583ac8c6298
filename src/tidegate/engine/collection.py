"""The open sources of one process, and the resources that they share (`Collection`).

The resources are the context (database, Valkey), the HTTP client, the document store and the feed of run changes.

A process of the application opens the sources of all systems and those of the setting `sources`
(`tidegate.engine.system`). A command opens only the source that it needs: `open_source`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from tidegate.connections import open_context
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.engine import job_store, runs
from tidegate.engine.cells import cell_context, source_of_pool
from tidegate.engine.change_feed import RunChangeFeed
from tidegate.engine.committer import Moved
from tidegate.engine.completion import Finalizer, UnservedRuns
from tidegate.engine.credentials import Credential, CredentialManager
from tidegate.engine.credentials.memory_tokens import Tokens, environment_token
from tidegate.engine.credentials.records import everything
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.preflight import check_before_migration
from tidegate.engine.runs import Run
from tidegate.engine.schedules import store as schedule_records
from tidegate.engine.schedules.firings import Firing
from tidegate.engine.schedules.store import Schedules
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source, Subject
from tidegate.engine.source_cell import SourceCell, build_credential_manager, open_cell
from tidegate.engine.source_plugin import (
    OwnSourcePlugin,
    SourceParts,
    SourcePlugin,
    find_plugin,
    source_names,
)
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.primitives.gate import Gate, PoolStatus
from tidegate.primitives.stream import Stream
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.waiting import end
from tidegate.settings import Settings
from tidegate.storage.documents import Documents, open_documents
from tidegate.system import Context, enabled_systems

_CHECK_AGAIN_S = 30.0
"""Runs are read again after this long, in case a change was not reported."""


class Collection:
    """The sources that are open in this process. `parts` is the context of the process."""

    def __init__(
        self, context: Context, client: UpstreamClient, documents: Documents, change_feed: RunChangeFeed
    ) -> None:
        self.parts, self.client, self.documents, self.change_feed = context, client, documents, change_feed
        self.cells: dict[str, SourceCell] = {}
        """Open sources by name, in the order in which they were opened."""
        self._contexts: dict[str, Context] = {}

    @asynccontextmanager
    async def open_source(
        self, plugin: SourcePlugin, *, token: str | None = None, needs_credential: bool = False
    ) -> AsyncGenerator[SourceCell]:
        """Open a source in this process for the duration of the context.

        `token` is used while no stored credential serves all users. If the upstream is unavailable, the token is
        checked later, unless `needs_credential` is set: then the error is raised, and `InvalidSettings` if the process
        has no credential for any call.
        """
        opening = open_cell(
            self.parts, plugin, client=self.client, documents=self.documents, change_feed=self.change_feed, token=token
        )
        async with opening as cell:
            if needs_credential:
                await cell.require_credentials()
            elif cell.token is not None:
                await cell.token.try_now()
            self.cells[plugin.name] = cell
            try:
                yield cell
            finally:
                del self.cells[plugin.name]

    @property
    def default_source(self) -> str:
        """The source of commands and requests that do not name one."""
        return self.parts.section(CollectSettings).source

    def cell(self, source: str | None = None) -> SourceCell:
        """Return an open source, by default the default one. Raises `InvalidArgument` if it is not open here."""
        name = self.default_source if source is None else source
        if name not in self.cells:
            known = ", ".join(sorted(self.cells)) or "none"
            raise InvalidArgument("source", name, f"must be one of {known}")
        return self.cells[name]

    def context_of(self, source: str) -> Context:
        """The context of a source, whether it is open here or not."""
        if source in self.cells:
            return self.cells[source].parts
        if source not in self._contexts:
            self._contexts[source] = cell_context(self.parts, source)
        return self._contexts[source]

    def gate_of(self, pool: str) -> Gate:
        """The gate that knows the credentials of a pool."""
        return self.context_of(source_of_pool(pool)).gate

    @property
    def pools(self) -> list[str]:
        """The pools that serve all users of the sources that are open here."""
        return [name for name, cell in self.cells.items() if cell.stored is not None]

    @property
    def job_streams(self) -> list[Stream]:
        """The streams from which workers take jobs, one for each source that is open here."""
        return [cell.parts.jobs for cell in self.cells.values()]

    @property
    def streams(self) -> list[Stream]:
        """Job streams and alarms of this process and of its cells."""
        return [stream for each in self.contexts.values() for stream in (each.jobs, each.alarms)]

    @property
    def contexts(self) -> dict[str, Context]:
        """The context of this process under the empty name, and those of its cells by name of the source."""
        return {"": self.parts, **{name: cell.parts for name, cell in self.cells.items()}}

    async def status(self, pool: str) -> PoolStatus:
        """The waiting jobs of a pool and the allowances of its credentials."""
        return await self.gate_of(pool).status(pool)

    async def begin(self, source: str, subject: Subject) -> int:
        """Start a run, or resume the active one; returns its id. A worker process executes it.

        Raises `NoCredential` without a valid credential, and `InvalidArgument` for an unknown source.
        """
        return await self.cell(source).begin_or_resume(subject)

    async def show(self, run_id: int) -> Run:
        """Return a run. Raises `NotFound`."""
        return await self.parts.database.read(runs.get, run_id)

    async def orchestrator_of(self, run_id: int) -> Orchestrator:
        """Return the orchestrator that retries and cancels a run, also of a source that is not open here.

        Raises `NotFound` for an unknown run.
        """
        run = await self.show(run_id)
        if run.source in self.cells:
            return self.cells[run.source].orchestrator
        return Orchestrator(self.parts.database, self.context_of(run.source).gate, {}, on_moved=self.change_feed.moved)

    async def run_of(self, job_id: int) -> int:
        """Return the id of the run of a job. Raises `NotFound`."""
        found = await self.parts.database.read(job_store.runs_of, [job_id])
        if not found:
            raise NotFound("job", job_id)
        return found[0]

    async def list_credentials(self, source: str | None = None) -> Sequence[Credential]:
        """Return the stored credentials of a source, or of all sources, without secrets."""
        return [stored.credential for stored in await self.parts.database.read(everything, source)]

    def credential_manager(self, source: str | None = None) -> CredentialManager:
        """The stored credentials of a source, by default of the default one; raises `InvalidArgument`."""
        return self.cell(source).credential_manager

    @property
    def schedules(self) -> Schedules:
        """Schedules of all sources that are open here."""
        wakeups = _Wakeups([cell.parts.timers.wakeup for cell in self.cells.values()])
        sources = {name: cell.source for name, cell in self.cells.items()}
        return Schedules(self.parts.database, sources, wakeups, self.trigger)

    def process(self, *, works: bool = True, services: Mapping[str, Service] | None = None) -> Supervisor:
        """Build a process that runs the cells of all open sources; with workers if `works` is set."""
        if len(self.cells) == 1:
            (cell,) = self.cells.values()
            return cell.process(works=works, services=services)
        process = Supervisor()
        for name, cell in self.cells.items():
            process.add(f"source {name}", cell.service(works=works))
        for name, service in (services or {}).items():
            process.add(name, service)
        return process

    async def collect(self, source: str, subjects: Sequence[Subject], *, handle_signals: bool = False) -> list[Run]:
        """Collect `subjects` with workers of this process until their runs have ended. Returns the runs.

        With `handle_signals`, SIGINT and SIGTERM shut it down gracefully. Runs that have not ended then are continued
        by the same call. Cancelling the caller shuts it down gracefully too.
        """
        run_ids = [await self.begin(source, subject) for subject in subjects]
        process = self.cell(source).process()
        running = asyncio.create_task(process.run(handle_signals=handle_signals), name="process")
        watching = asyncio.create_task(self._until_over(run_ids), name="watch the runs")
        try:
            await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not running.done():
                process.stop()
            await end(watching)
            await running
        return [await self.show(run_id) for run_id in run_ids]

    async def trigger(self, schedule_id: int, firing_key: str) -> Firing:
        """Fire a schedule now; see `Schedules.trigger`."""
        schedule = await self.parts.database.read(schedule_records.get, schedule_id)
        return await self.cell(schedule.source).schedules.trigger(schedule_id, firing_key)

    async def _until_over(self, run_ids: Sequence[int]) -> None:
        async with self.change_feed.watch(run_ids) as watch:
            left = list(run_ids)
            while left:
                found = [await self.show(run_id) for run_id in left]
                left = [run.id for run in found if run.status in ACTIVE_RUNS]
                if left:
                    await watch.wait(within_s=_CHECK_AGAIN_S)


class _Wakeups:
    """Wakes the leaders of all open cells, because the timekeeper of one of them fires the schedule."""

    def __init__(self, wakeups: Sequence[Wakeup]) -> None:
        self._wakeups = wakeups

    async def notify(self) -> None:
        for wakeup in self._wakeups:
            await wakeup.notify()


@asynccontextmanager
async def open_empty_collection(context: Context) -> AsyncGenerator[Collection]:
    """Open a collection on an open context. It has no sources yet."""
    settings = context.settings
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(UpstreamClient(settings.section(UpstreamSettings)))
        documents = await open_documents(settings.documents, context.database)
        stack.push_async_callback(documents.close)
        change_feed = RunChangeFeed(context.valkey, context.unit)
        stack.push_async_callback(change_feed.close)
        yield Collection(context, client, documents, change_feed)


@asynccontextmanager
async def open_source(
    settings: Settings, source: str, *, token: str | None = None, needs_credential: bool = False
) -> AsyncGenerator[Collection]:
    """Open a collection with one source. Other sources are neither opened nor imported.

    `token` defaults to that of the environment. With `needs_credential`, raises `InvalidSettings` if this process has
    no credential for any call, and passes on the error of an unavailable upstream.
    """
    plugin = find_plugin(settings, source)
    token = token or environment_token(source)
    systems = enabled_systems(settings, ["collection"])
    check = partial(check_before_migration, settings, systems, [partial(plugin.check, token)])
    async with (
        open_context(settings, before_migration=check) as context,
        open_empty_collection(context) as collection,
        collection.open_source(plugin, token=token, needs_credential=needs_credential),
    ):
        yield collection


@asynccontextmanager
async def open_sources(
    settings: Settings,
    sources: Sequence[Source],
    tokens: Tokens | Mapping[str, Tokens],
    *,
    finalizers: Sequence[Finalizer] = (),
) -> AsyncGenerator[Collection]:
    """Open a collection with `sources` that a program defines.

    Calls use `tokens`; with several sources, `tokens` maps the name of each source to its own tokens. The pool of the
    tokens must have the name of the source.

        async with open_sources(settings, [BookshopSource()], Tokens("bookshop", {"first": token})) as collection:
            [run] = await collection.collect("bookshop", [Subject(user_id="corner", login="corner")])
    """
    by_source = _tokens_of(sources, tokens)
    async with (
        open_context(settings) as context,
        open_empty_collection(context) as collection,
        AsyncExitStack() as stack,
    ):
        for source in sources:
            plugin = _SourceWithTokens(
                settings, source, by_source[source.name], finalizers, collection.change_feed.moved
            )
            await stack.enter_async_context(collection.open_source(plugin))
        yield collection


@asynccontextmanager
async def open_credentials(settings: Settings, source: str) -> AsyncGenerator[CredentialManager]:
    """Open the stored credentials of a source, for commands that manage them.

    The keys of all installed sources are rotated together. Raises `InvalidArgument` if the source stores none.
    """
    plugin = find_plugin(settings, source)
    if not plugin.stores_credentials:
        raise InvalidArgument("source", source, "has no stored credentials")
    async with open_context(settings) as context, UpstreamClient(settings.section(UpstreamSettings)) as client:
        change_feed, cell = RunChangeFeed(context.valkey, context.unit), cell_context(context, source)
        unserved = UnservedRuns(cell, source, on_moved=change_feed.moved)
        manager = build_credential_manager(cell, plugin, client, on_unserved=unserved.check)
        for name in source_names(settings):
            other = find_plugin(settings, name)
            manager.holdings.append(partial(other.holding, cell_context(context, name), manager.vault))
        try:
            yield manager
        finally:
            await manager.close()
            await change_feed.close()


@asynccontextmanager
async def open_schedules(settings: Settings, source: str | None = None) -> AsyncGenerator[Schedules]:
    """Open the schedules for commands that change them. No credential is needed.

    Schedules can be added for `source`, and changed for all sources.
    """
    known = {} if source is None else {source: find_plugin(settings, source).source}
    async with open_context(settings) as context:
        names = [source] if source is not None else source_names(settings)
        wakeups = _Wakeups([cell_context(context, name).timers.wakeup for name in names])
        yield Schedules(context.database, known, wakeups)


class _SourceWithTokens(OwnSourcePlugin):
    """A source of a program that supplies its own tokens."""

    stores_credentials = False

    def __init__(
        self, settings: Settings, source: Source, tokens: Tokens, finalizers: Sequence[Finalizer], on_moved: Moved
    ) -> None:
        super().__init__(settings, source)
        self._tokens, self._finalizers, self._on_moved = tokens, finalizers, on_moved

    @asynccontextmanager
    async def open(self, cell: Context, client: object, documents: object) -> AsyncGenerator[SourceParts]:
        del client, documents
        yield SourceParts(credentials=_ProgramTokens(self._tokens, cell, self._on_moved), finalizers=self._finalizers)


class _ProgramTokens:
    """The tokens of a program. When the last one is rejected, open runs fail, because they would wait forever."""

    def __init__(self, tokens: Tokens, cell: Context, on_moved: Moved) -> None:
        self._tokens, self._cell, self._on_moved = tokens, cell, on_moved

    async def pool_for(self, user_id: str) -> str:
        return await self._tokens.pool_for(user_id)

    async def register(self) -> None:
        await self._tokens.register(self._cell.gate)

    async def secret_of(self, credential: str) -> str:
        return await self._tokens.secret_of(credential)

    async def rejected(self, credential: str, secret: str, reason: str) -> bool:
        del secret
        if not self._tokens.refuse(credential, reason):
            why = f"no valid credential for pool {self._tokens.pool!r}: {reason}"
            failed = await self._cell.database.transaction(runs.fail_pool, self._tokens.pool, why)
            self._on_moved(failed)
            recovery = Recovery(self._cell.database, self._cell.gate)
            await recovery.forget_failed(failed)
        return False


def _tokens_of(sources: Sequence[Source], tokens: Tokens | Mapping[str, Tokens]) -> Mapping[str, Tokens]:
    """The tokens of each source. Sources do not share tokens, because two gates would spend one allowance twice."""
    names = sorted(source.name for source in sources)
    if isinstance(tokens, Tokens):
        if len(names) != 1:
            raise InvalidArgument("tokens", repr(tokens), f"must be given for each source: {', '.join(names)}")
        tokens = {names[0]: tokens}
    if sorted(tokens) != names:
        raise InvalidArgument("tokens", sorted(tokens), f"must be given for each source: {', '.join(names)}")
    for name, one in tokens.items():
        if one.pool != name and not one.pool.startswith(f"{name}:"):
            raise InvalidArgument("pool", one.pool, f"must have the name of its source: {name}")
    return tokens


__all__ = [
    "Collection",
    "open_credentials",
    "open_empty_collection",
    "open_schedules",
    "open_source",
    "open_sources",
]
