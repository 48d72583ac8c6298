"""Collection from sources of one's own, put together: nothing of GitHub is needed for it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tidegate.app.collecting import Collecting, put_schedules_together
from tidegate.connections import open_context
from tidegate.engine import unserved_pools
from tidegate.engine.change_feed import Bulletin
from tidegate.engine.collector import Collector, Ground
from tidegate.engine.committer import Moved
from tidegate.engine.completion import Finalizer
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.recovery import Recovery
from tidegate.engine.runs import Run, RunActive
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source, Subject
from tidegate.engine.tokens import Tokens
from tidegate.engine.upstream import UpstreamClient
from tidegate.engine.upstream.settings import UpstreamSettings
from tidegate.runtime.waiting import end
from tidegate.settings import Settings
from tidegate.storage.documents import open_documents
from tidegate.system import Context

_LOOK_AGAIN_S = 30.0
"""Should the news of a run's end be lost, somebody looks after this long."""


class _Lent:
    """Tokens in the hands of workers: when the last is refused, runs fail, since they would wait for ever."""

    def __init__(self, tokens: Tokens, parts: Context, on_moved: Moved) -> None:
        self._tokens, self._parts, self._on_moved = tokens, parts, on_moved

    async def secret_of(self, credential: str) -> str:
        return await self._tokens.secret_of(credential)

    async def rejected(self, credential: str, secret: str, reason: str) -> bool:
        del secret
        if not self._tokens.refuse(credential, reason):
            why = f"no valid credential for pool {self._tokens.pool!r}: {reason}"
            failed = await self._parts.database.transaction(unserved_pools.fail, self._tokens.pool, why)
            self._on_moved(failed)
            recovery = Recovery(self._parts.database, self._parts.gate)
            await recovery.forget_jobs([job_id for ids in failed.values() for job_id in ids])
        return False


@dataclass(frozen=True, kw_only=True)
class SourceCollection(Collecting):
    """A process's hold on collection from sources of one's own."""

    tokens: Tokens

    async def begin(self, source: str, subject: Subject) -> int:
        """Begin a run, or find the one that is still active; returns its number. Some process must be at work.

        Raises `NoCredential` where the upstream has refused all tokens.
        """
        pool = await self.tokens.pool_for(subject.user_id)
        try:
            return await self.orchestrator.begin(source, subject, pool=pool)
        except RunActive as active:
            # Whoever began it may have died before its jobs were offered.
            await Recovery(self.parts.database, self.parts.gate).offer_run(active.run_id)
            return active.run_id

    async def collect(self, source: str, subjects: Sequence[Subject], *, handle_signals: bool = False) -> list[Run]:
        """Collect all of `subjects`, with workers of this process, until their runs are over.

        With `handle_signals`, SIGINT and SIGTERM stop it in good order: then some runs are not over, and the same call
        goes on with them. A caller that is cancelled stops it in good order too.
        """
        run_ids = [await self.begin(source, subject) for subject in subjects]
        process = self.process()
        running = asyncio.create_task(process.run(handle_signals=handle_signals), name="process")
        watching = asyncio.create_task(self._until_over(run_ids), name="watch the runs")
        try:
            await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not running.done():
                process.stop()
            await end(watching)
            await running
        return [await self.orchestrator.show(run_id) for run_id in run_ids]

    async def _until_over(self, run_ids: Sequence[int]) -> None:
        async with self.bulletin.watch(run_ids) as watch:
            left = list(run_ids)
            while left:
                runs = [await self.orchestrator.show(run_id) for run_id in left]
                left = [run.id for run in runs if run.status in ACTIVE_RUNS]
                if left:
                    await watch.news(within_s=_LOOK_AGAIN_S)


@asynccontextmanager
async def open_sources(
    settings: Settings, sources: Sequence[Source], tokens: Tokens, *, finalizers: Sequence[Finalizer] = ()
) -> AsyncGenerator[SourceCollection]:
    """Everything that collection from `sources` needs, for the length of a block; `tokens` make the calls."""
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(open_context(settings))
        client = await stack.enter_async_context(UpstreamClient(settings.section(UpstreamSettings)))
        documents = await open_documents(settings.documents, parts.database)
        stack.push_async_callback(documents.close)
        bulletin = Bulletin(parts.valkey, parts.unit)
        stack.push_async_callback(bulletin.close)
        collector = Collector(
            Ground(parts.database, parts.gate, parts.jobs, parts.owner, documents),
            sources,
            caller=client,
            secrets=_Lent(tokens, parts, bulletin.moved),
            enrol_credentials=lambda: tokens.enrol(parts.gate),
            finalizers=finalizers,
            on_moved=bulletin.moved,
            settings=settings.section(CollectSettings),
        )

        async def pool_for(_source: str, user_id: str) -> str:
            return await tokens.pool_for(user_id)

        schedules, due = put_schedules_together(parts, collector, sources, pool_for)
        yield SourceCollection(
            parts=parts,
            documents=documents,
            collector=collector,
            bulletin=bulletin,
            schedules=schedules,
            due_schedules=due,
            tokens=tokens,
        )
