"""Collection from sources of a program's own: nothing of GitHub is needed for it.

Each source has a cell: the processes that know it, with a leader, a gate and a job stream of their own. So its jobs
reach only processes that know it, its tokens are enrolled by one of them, and the processes of other sources are not
disturbed. SQL is shared. When the last process of a cell dies, the runs stay in SQL, and the next process that knows
the source continues them.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tidegate.app.cells import SHARED_SOURCES, CellService, cell_context
from tidegate.app.collecting import Collecting, put_schedules_together
from tidegate.app.unserved_runs import UnservedRuns
from tidegate.connections import open_context
from tidegate.core.errors import InvalidArgument
from tidegate.engine import runs
from tidegate.engine.change_feed import ChangeFeed
from tidegate.engine.collector import CollectDependencies, Collector
from tidegate.engine.committer import Moved
from tidegate.engine.completion import Finalizer
from tidegate.engine.credentials import CredentialBook, token_variable
from tidegate.engine.credentials.opening import open_vault
from tidegate.engine.credentials.token_authority import TokenAuthority
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.registry import load_sources, require_known
from tidegate.engine.runs import Run, RunActive
from tidegate.engine.schedules import store as schedule_records
from tidegate.engine.schedules.firings import Firing
from tidegate.engine.schedules.store import Schedules
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source, Subject
from tidegate.engine.tokens import Tokens
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.waiting import end
from tidegate.settings import Settings
from tidegate.storage.documents import Documents, open_documents
from tidegate.system import Context

_LOOK_AGAIN_S = 30.0
"""Should the news of a run's end be lost, somebody looks after this long."""


class CallCredentials(Protocol):
    """Who makes the calls of a source: `Tokens` of a program, or credentials that are stored."""

    async def pool_for(self, user_id: str) -> str:
        """The pool for the runs of a user; raises `NoCredential`."""
        ...

    async def secret_of(self, credential: str) -> str:
        """What is sent for a credential."""
        ...

    async def rejected(self, credential: str, secret: str, reason: str) -> bool:
        """The upstream refused a secret; True if there is another one for the same allowance."""
        ...

    async def enrol(self) -> None:
        """Make the gate of the cell agree with what there is."""
        ...


class _Lent:
    """Tokens that workers use: when the last one is refused, runs fail, since they would wait for ever."""

    def __init__(self, tokens: Tokens, parts: Context, on_moved: Moved) -> None:
        self._tokens, self._parts, self._on_moved = tokens, parts, on_moved

    async def pool_for(self, user_id: str) -> str:
        return await self._tokens.pool_for(user_id)

    async def enrol(self) -> None:
        await self._tokens.enrol(self._parts.gate)

    async def secret_of(self, credential: str) -> str:
        return await self._tokens.secret_of(credential)

    async def rejected(self, credential: str, secret: str, reason: str) -> bool:
        del secret
        if not self._tokens.refuse(credential, reason):
            why = f"no valid credential for pool {self._tokens.pool!r}: {reason}"
            failed = await self._parts.database.transaction(runs.fail_pool, self._tokens.pool, why)
            self._on_moved(failed)
            recovery = Recovery(self._parts.database, self._parts.gate)
            await recovery.forget_failed(failed)
        return False


@dataclass(frozen=True, kw_only=True)
class SourceCell(Collecting):
    """One source in this process; its `parts` are those of its cell."""

    source: Source
    credentials: CallCredentials

    async def begin(self, subject: Subject) -> int:
        """See `SourceCollection.begin`."""
        pool = await self.credentials.pool_for(subject.user_id)
        try:
            return await self.orchestrator.begin(self.source.name, subject, pool=pool)
        except RunActive as active:
            # The process that began it may have died before its jobs were offered.
            recovery = Recovery(self.parts.database, self.parts.gate, sources=[self.source.name])
            await recovery.offer_run(active.run_id)
            return active.run_id


@dataclass(frozen=True, kw_only=True)
class SourceCollection:
    """Sources of a program's own in this process."""

    parts: Context
    documents: Documents
    bulletin: ChangeFeed
    """Reports that a run changed, in this process or another."""
    cells: Mapping[str, SourceCell]
    """By the names of the sources."""
    schedules: Schedules
    """Begins runs by the clock, while a process that knows the source runs."""

    async def begin(self, source: str, subject: Subject) -> int:
        """Begin a run, or find the one that is still active; returns its number. Some process must be at work.

        Raises `NoCredential` where the upstream has refused all tokens, `InvalidArgument` for an unknown source.
        """
        return await self._cell(source).begin(subject)

    async def show(self, run_id: int) -> Run:
        """One run, as it stands."""
        return await self.parts.database.read(runs.get, run_id)

    def process(self, *, works: bool = True, services: Mapping[str, Service] | None = None) -> Supervisor:
        """A process that stays, with workers for all sources where it `works`, and with `services` of the caller's."""
        if len(self.cells) == 1:
            (cell,) = self.cells.values()
            return cell.process(works=works, services=services)
        process = Supervisor()
        for name, cell in self.cells.items():
            process.add(f"source {name}", CellService(partial(cell.process, works=works)))
        for name, service in (services or {}).items():
            process.add(name, service)
        return process

    async def collect(self, source: str, subjects: Sequence[Subject], *, handle_signals: bool = False) -> list[Run]:
        """Collect all of `subjects`, with workers of this process, until their runs are over.

        With `handle_signals`, SIGINT and SIGTERM stop it gracefully: then some runs are not over, and the same call
        goes on with them. A caller that is cancelled stops it gracefully too.
        """
        run_ids = [await self.begin(source, subject) for subject in subjects]
        process = self._cell(source).process()
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

    def _cell(self, source: str) -> SourceCell:
        if source not in self.cells:
            raise InvalidArgument("source", source, f"must be one of {', '.join(sorted(self.cells))}")
        return self.cells[source]

    async def _until_over(self, run_ids: Sequence[int]) -> None:
        async with self.bulletin.watch(run_ids) as watch:
            left = list(run_ids)
            while left:
                found = [await self.show(run_id) for run_id in left]
                left = [run.id for run in found if run.status in ACTIVE_RUNS]
                if left:
                    await watch.news(within_s=_LOOK_AGAIN_S)


class _Doorbells:
    """Wakes the leaders of all cells."""

    def __init__(self, wakeups: Sequence[Wakeup]) -> None:
        self._doorbells = wakeups

    async def notify(self) -> None:
        for wakeup in self._doorbells:
            await wakeup.notify()


@asynccontextmanager
async def open_sources(
    settings: Settings,
    sources: Sequence[Source],
    tokens: Tokens | Mapping[str, Tokens],
    *,
    finalizers: Sequence[Finalizer] = (),
) -> AsyncGenerator[SourceCollection]:
    """Everything that collection from `sources` needs, for the length of a block.

    `tokens` make the calls; several sources have tokens of their own each, by the name of the source. The pool of the
    tokens is called like the source.
    """
    by_source = _tokens_of(sources, tokens)
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(open_context(settings))
        client = await stack.enter_async_context(UpstreamClient(settings.section(UpstreamSettings)))
        documents = await open_documents(settings.documents, parts.database)
        stack.push_async_callback(documents.close)
        bulletin = ChangeFeed(parts.valkey, parts.unit)
        stack.push_async_callback(bulletin.close)
        cells = {
            source.name: _with_tokens(
                cell_context(parts, source.name),
                source,
                by_source[source.name],
                documents=documents,
                client=client,
                bulletin=bulletin,
                finalizers=finalizers,
            )
            for source in sources
        }
        yield _collection(parts, cells, documents, bulletin)


@asynccontextmanager
async def open_configured(context: Context, names: Sequence[str] | None = None) -> AsyncGenerator[SourceCollection]:
    """The sources that the settings name, or those of `names`, with their stored credentials, for a block.

    While none is stored, the token of the environment serves: `BOOKSHOP_TOKEN` for the source `bookshop`.
    """
    settings = context.settings
    known = load_sources(settings.sources, taken=SHARED_SOURCES)
    chosen = known if names is None else {name: require_known(known, name, others=SHARED_SOURCES) for name in names}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(UpstreamClient(settings.section(UpstreamSettings)))
        documents = await open_documents(settings.documents, context.database)
        stack.push_async_callback(documents.close)
        bulletin = ChangeFeed(context.valkey, context.unit)
        stack.push_async_callback(bulletin.close)
        cells: dict[str, SourceCell] = {}
        for name, source in chosen.items():
            cell = cell_context(context, name)
            unserved = UnservedRuns(cell, name, on_moved=bulletin.moved)
            book = source_book(cell, name, unserved)
            stack.push_async_callback(book.close)
            if token := os.environ.get(token_variable(name)):
                await book.borrow(token)
            cells[name] = _put_cell_together(
                cell,
                source,
                book,
                documents=documents,
                client=client,
                bulletin=bulletin,
                finalizers=(),
                unserved=unserved,
            )
        yield _collection(context, cells, documents, bulletin)


@asynccontextmanager
async def open_source_credentials(settings: Settings, source: str) -> AsyncGenerator[CredentialBook]:
    """The stored credentials of a source of the settings, for the length of a block."""
    require_known(load_sources(settings.sources, taken=SHARED_SOURCES), source, others=SHARED_SOURCES)
    async with open_context(settings) as context:
        bulletin = ChangeFeed(context.valkey, context.unit)
        cell = cell_context(context, source)
        book = source_book(cell, source, UnservedRuns(cell, source, on_moved=bulletin.moved))
        try:
            yield book
        finally:
            await book.close()
            await bulletin.close()


def source_book(cell: Context, source: str, unserved: UnservedRuns) -> CredentialBook:
    """The stored credentials of a source, known to the gate of its cell."""
    return CredentialBook(
        cell.database,
        cell.gate,
        open_vault(cell.settings, cell.database),
        TokenAuthority(source),
        source=source,
        limits=cell.settings.gate,
        on_unserved=unserved.look_at,
        before_enrolment=Recovery(cell.database, cell.gate, sources=[source]).remind_gate,
    )


def _collection(
    parts: Context, cells: Mapping[str, SourceCell], documents: Documents, bulletin: ChangeFeed
) -> SourceCollection:
    async def fire(schedule_id: int, firing_key: str) -> Firing:
        schedule = await parts.database.read(schedule_records.get, schedule_id)
        if schedule.source not in cells:
            raise InvalidArgument("source", schedule.source, f"must be one of {', '.join(sorted(cells))}")
        return await cells[schedule.source].schedules.trigger(schedule_id, firing_key)

    wakeups = _Doorbells([cell.parts.timers.wakeup for cell in cells.values()])
    known = {name: cell.source for name, cell in cells.items()}
    schedules = Schedules(parts.database, known, wakeups, fire)
    return SourceCollection(parts=parts, documents=documents, bulletin=bulletin, cells=cells, schedules=schedules)


def _with_tokens(
    parts: Context,
    source: Source,
    tokens: Tokens,
    *,
    documents: Documents,
    client: UpstreamClient,
    bulletin: ChangeFeed,
    finalizers: Sequence[Finalizer],
) -> SourceCell:
    lent = _Lent(tokens, parts, bulletin.moved)
    return _put_cell_together(
        parts, source, lent, documents=documents, client=client, bulletin=bulletin, finalizers=finalizers
    )


def _tokens_of(sources: Sequence[Source], tokens: Tokens | Mapping[str, Tokens]) -> Mapping[str, Tokens]:
    """The tokens of each source. An allowance that two gates know would be spent twice, so none is shared."""
    names = sorted(source.name for source in sources)
    if isinstance(tokens, Tokens):
        if len(names) != 1:
            raise InvalidArgument("tokens", repr(tokens), f"must be given for each source: {', '.join(names)}")
        tokens = {names[0]: tokens}
    if sorted(tokens) != names:
        raise InvalidArgument("tokens", sorted(tokens), f"must be given for each source: {', '.join(names)}")
    for name, one in tokens.items():
        if one.pool != name and not one.pool.startswith(f"{name}:"):
            raise InvalidArgument("pool", one.pool, f"must be called like its source: {name}")
    return tokens


def _put_cell_together(
    parts: Context,
    source: Source,
    credentials: CallCredentials,
    *,
    documents: Documents,
    client: UpstreamClient,
    bulletin: ChangeFeed,
    finalizers: Sequence[Finalizer],
    unserved: UnservedRuns | None = None,
) -> SourceCell:
    """A cell; `unserved` fails runs without a stored credential, and is left out for tokens of a program."""

    async def enrol() -> None:
        await credentials.enrol()
        if unserved is not None:
            await unserved.look_everywhere()

    collector = Collector(
        CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, documents),
        [source],
        caller=client,
        secrets=credentials,
        enrol_credentials=enrol,
        finalizers=finalizers,
        after_offer=None if unserved is None else unserved.look_at,
        on_moved=bulletin.moved,
        settings=parts.section(CollectSettings),
    )

    async def pool_for(_source: str, user_id: str) -> str:
        return await credentials.pool_for(user_id)

    schedules, due = put_schedules_together(parts, collector, [source], pool_for)
    return SourceCell(
        parts=parts,
        documents=documents,
        collector=collector,
        bulletin=bulletin,
        schedules=schedules,
        due_schedules=due,
        source=source,
        credentials=credentials,
    )
