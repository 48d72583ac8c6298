"""A small run that begins while a large one waits on the same pool: how much longer it takes than alone.

The upstream answers after a fixed time, and the pool may have a fixed number of calls under way, so the large run keeps
it busy for as long as the measurement lasts. The small run is what a user with one repository needs: three calls, and
then three more that these find.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.engine import ANSWER, REQUEST, SAID
from bench.figures import Figure, Section
from tidegate.connections import open_context
from tidegate.engine.lifecycle import RunState
from tidegate.engine.runs import Run
from tidegate.engine.source import JobSpec, Reading, Subject, Task
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.upstream import Answer, Permit, Request
from tidegate.primitives.gate import CredentialLimits
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import SqlDocuments

WAITING, PER_PAGE = 50_000, 1_000
ANSWER_S, AT_ONCE = 0.1, 50
SMALL_RUNS = 5
MOST_S = 2.0
LIMITS = CredentialLimits(concurrency=AT_ONCE, per_minute=10**9, floor=0)


class LargeAndSmall:
    """A source and its upstream: the user `large` has lists with 50,000 entries, all others have one repository."""

    name = "bench"
    planning_kinds = frozenset({"FIND"})

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        if subject.login == "large":
            return [JobSpec(kind="FIND", resource=f"list:{n}") for n in range(WAITING // PER_PAGE)]
        return [JobSpec(kind=kind, resource=f"user:{subject.login}") for kind in ("PROFILE", "REPOSITORIES", "EVENTS")]

    def request(self, task: Task, secret: str) -> Request:
        del task, secret
        return REQUEST

    def read(self, task: Task, answer: Answer) -> Reading:
        del answer
        resource, found = task.spec.resource, list[JobSpec]()
        if task.spec.kind == "FIND":
            found = [JobSpec(kind="ENTRY", resource=resource, page=str(n)) for n in range(PER_PAGE)]
        elif task.spec.kind == "REPOSITORIES":
            found = [JobSpec(kind=kind, resource=resource) for kind in ("ISSUES", "PULLS", "COMMITS")]
        return Reading(follow_ups=found, allowance=SAID)

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        del request, permit
        await asyncio.sleep(ANSWER_S)
        return ANSWER

    async def secret_of(self, credential: str) -> str:
        return credential


class Bench:
    """One process that collects, and a stopwatch."""

    def __init__(self, collector: Collector, ended: "Ended") -> None:
        self._orchestrator, self._ended = collector.orchestrator, ended

    async def begin_large(self) -> None:
        """Return when everything of it is found, and waits."""
        run_id = await self._begin("large")
        while (await self._orchestrator.show(run_id)).total_jobs < WAITING:
            await asyncio.sleep(0.05)

    async def small(self, login: str) -> float:
        """How long one small run takes, from its begin to its completion, in seconds."""
        began = time.perf_counter()
        run_id = await self._begin(login)
        await self._ended.wait(run_id)
        while (await self._orchestrator.show(run_id)).status is not RunState.COMPLETED:
            await asyncio.sleep(0.005)
        return time.perf_counter() - began

    async def _begin(self, login: str) -> int:
        return await self._orchestrator.begin("bench", Subject(user_id=login, login=login), pool="pool")


class Ended:
    """A finalizer that records the end."""

    def __init__(self) -> None:
        self._events: dict[int, asyncio.Event] = {}

    async def note(self, run: Run) -> None:
        self._event(run.id).set()

    async def wait(self, run_id: int) -> None:
        await self._event(run_id).wait()

    def _event(self, run_id: int) -> asyncio.Event:
        return self._events.setdefault(run_id, asyncio.Event())


async def measure() -> Section:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        async with open_context(Settings(data_dir=Path(folder))) as parts:
            source, ended = LargeAndSmall(), Ended()

            async def register() -> None:
                await parts.gate.register("token", pool="pool", limits=LIMITS)

            collector = Collector(
                CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database)),
                [source],
                caller=source,
                secrets=source,
                register_credentials=register,
                finalizers=[ended.note],
            )
            process = build_process(
                parts,
                handlers=collector.handlers,
                services=collector.services,
                leader_services={"recovery": collector.recovery_service},
            )
            running = asyncio.create_task(process.run())
            bench = Bench(collector, ended)
            await bench.small("warm-up")
            alone = [await bench.small(f"alone-{n}") for n in range(SMALL_RUNS)]
            await bench.begin_large()
            beside = [await bench.small(f"beside-{n}") for n in range(SMALL_RUNS)]
            waiting = (await parts.gate.shard_status()).waiting
            process.stop()
            await running
    delay = max(beside) - median(alone)
    figures = [
        Figure("small run alone", f"{1000 * median(alone):.0f} ms, at most {1000 * max(alone):.0f} ms"),
        Figure(
            f"small run beside {waiting:,} waiting jobs of another",
            f"{1000 * median(beside):.0f} ms, at most {1000 * max(beside):.0f} ms",
        ),
        Figure("longest delay by the other", f"{1000 * delay:.0f} ms", f"≤ {MOST_S:.0f} s", delay <= MOST_S),
    ]
    note = f"{SMALL_RUNS} runs each; answers take {1000 * ANSWER_S:.0f} ms; {AT_ONCE} calls may be under way at once."
    return Section("Fairness", figures, note)
