"""Assembles the collection engine of one process."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tidegate.engine.calls import CallRoute, Calls, Secrets, UpstreamCalls
from tidegate.engine.commit_batch import CommitPolicy, EffectWriter
from tidegate.engine.committer import Committer, Moved
from tidegate.engine.completion import Completion, Finalizer
from tidegate.engine.credentials.vault import RedirectCipher
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
    """The orchestrator, the worker services and the recovery duty for some sources.

    `caller` and `secrets` are used for every source without a route in `routes`. `writers`, by source name, write in
    the transaction that ends jobs. For the sources in `records_claims`, an execution is recorded
    when it begins, and not only when it ends. `barred` returns
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
        enrol_credentials: Callable[[], Awaitable[None]],
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
        barred: Barred = none_barred,
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
            Recovery(database, gate, sources=by_name, barred=barred),
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
            barred=barred,
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
            database, gate, by_name, after_offer, on_moved=on_moved, settings=settings, barred=barred
        )
        self.duty = RecoveryService(recovery, enrol_credentials)
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
