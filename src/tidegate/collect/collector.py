"""The parts of collection, put together for one process."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.collect.committer import Committer
from tidegate.collect.completion import Completion, Finalizer
from tidegate.collect.orchestrator import Orchestrator
from tidegate.collect.recovery import Recovery, RecoveryDuty
from tidegate.collect.source import Source
from tidegate.collect.worker import Caller, Secrets, Worker
from tidegate.database import Database
from tidegate.documents import DocumentStore
from tidegate.flow.gate import Gate
from tidegate.flow.stream import Stream
from tidegate.runtime.delivery import Handler
from tidegate.runtime.service import Service


@dataclass(frozen=True)
class Ground:
    """What collection stands on."""

    database: Database
    gate: Gate
    jobs: Stream
    owner: str
    documents: DocumentStore


class Collector:
    """Runs of jobs of some sources: the door, the services of a worker process, the duties of the leader."""

    def __init__(
        self,
        ground: Ground,
        sources: Sequence[Source],
        *,
        caller: Caller,
        secrets: Secrets,
        enrol_credentials: Callable[[], Awaitable[None]],
        finalizers: Sequence[Finalizer] = (),
    ) -> None:
        by_name = {source.name: source for source in sources}
        recovery = Recovery(ground.database, ground.gate)
        planning = {name: source.planning_kinds for name, source in by_name.items()}
        committer = Committer(ground.database, ground.gate, ground.documents, planning_kinds=planning)
        worker = Worker(
            ground.jobs.consumer(ground.owner),
            committer,
            by_name,
            caller,
            secrets,
            database=ground.database,
            gate=ground.gate,
            recovery=recovery,
        )
        self.orchestrator = Orchestrator(ground.database, ground.gate, by_name)
        self.duty = RecoveryDuty(recovery, enrol_credentials)
        """For the leader; its `ring` is for the death of a process."""
        self.handlers: Sequence[Handler] = [Completion(ground.database, finalizers).handler]
        self.services: Mapping[str, Service] = {"committer": committer, "worker": worker}
        """In this order: the worker stops before the committer that writes what it ends."""
