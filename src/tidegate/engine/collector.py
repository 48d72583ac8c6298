"""Assembles the collection engine of one process."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tidegate.engine.calls import CallRoute, Calls, Secrets, UpstreamCalls
from tidegate.engine.commit_batch import CommitPolicy, EffectWriter
from tidegate.engine.committer import Committer, Moved
from tidegate.engine.completion import Completion, Finalizer
from tidegate.engine.gate_sync import Barred, Recovery, RecoveryService, none_barred
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Source
from tidegate.engine.upstream.redirects import MOST_REDIRECTS
from tidegate.engine.worker import Worker
from tidegate.primitives.gate import Clearances, Gate
from tidegate.primitives.stream import MessageSource, Stream
from tidegate.runtime.delivery import Handler
from tidegate.runtime.service import Service
from tidegate.storage.documents import Documents
from tidegate.storage.sql import Database


@dataclass(frozen=True)
class CollectDependencies:
    """The servers and streams that collection uses."""

    database: Database
    gate: Gate
    jobs: Stream
    owner: str
    documents: Documents


class Collector:
    """Runs of jobs of some sources: the door, the services of a worker process, the duties of the leader.

    `caller` and `secrets` are the way of every source that has none of its own in `ways`. `writers`, by the name of
    their source, write in the transaction that ends jobs; for the sources in `records_claims` an execution is
    recorded when it begins, and not only when it ends. `barred` tells which credentials must not make the call of a
    job. `on_moved` is called, after the commit, with the numbers of runs whose jobs or counters moved in this process.
    """

    def __init__(
        self,
        ground: CollectDependencies,
        sources: Sequence[Source],
        *,
        caller: UpstreamCalls,
        secrets: Secrets,
        enrol_credentials: Callable[[], Awaitable[None]],
        finalizers: Sequence[Finalizer] = (),
        after_offer: Callable[[str], Awaitable[None]] | None = None,
        ways: Mapping[str, CallRoute] | None = None,
        writers: Mapping[str, EffectWriter] | None = None,
        records_claims: Collection[str] = (),
        on_moved: Moved = lambda _: None,
        at_once: int = 200,
        intake: MessageSource | None = None,
        settings: CollectSettings | None = None,
        most_redirects: int = MOST_REDIRECTS,
        barred: Barred = none_barred,
    ) -> None:
        settings = settings or CollectSettings()
        by_name = {source.name: source for source in sources}
        terms = CommitPolicy(
            planning={name: source.planning_kinds for name, source in by_name.items()},
            writers=writers or {},
            records_claims=frozenset(records_claims),
            max_attempts=settings.max_attempts,
        )
        database, gate = ground.database, ground.gate
        recovery, consumer = (
            Recovery(database, gate, sources=by_name, barred=barred),
            intake or ground.jobs.consumer(ground.owner),
        )
        committer = Committer(
            database,
            gate,
            ground.documents,
            consumer,
            recovery,
            terms=terms,
            pauses=settings.pauses,
            on_moved=on_moved,
            barred=barred,
        )
        way = CallRoute(caller, secrets)
        calls = Calls(
            by_name,
            way,
            database.clock,
            ways=ways,
            settings=settings,
            most_redirects=most_redirects,
            keep=committer.keep,
            clearances=Clearances(gate),
        )
        worker = Worker(consumer, committer, calls, gate=gate, recovery=recovery, at_once=at_once)
        self.orchestrator = Orchestrator(
            database, gate, by_name, after_offer, on_moved=on_moved, settings=settings, barred=barred
        )
        self.duty = RecoveryService(recovery, enrol_credentials)
        """For the leader; its `ring` is for the death of a process."""
        completion = Completion(
            database,
            by_name,
            finalizers,
            planning=terms.planning,
            on_moved=on_moved,
            attempts=settings.completion_attempts,
        )
        self.handlers: Sequence[Handler] = completion.handlers
        self.services: Mapping[str, Service] = {"committer": committer, "worker": worker}
        """In this order: the worker stops before the committer that writes what it ends."""
