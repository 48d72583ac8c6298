"""The whole path of a job, gate to settle, with a source whose answers need no network; each job's state is in SQL."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from multidict import CIMultiDict, CIMultiDictProxy

from bench.figures import Figure, Section
from tidegate.assembly import build_process, open_parts
from tidegate.collect.collector import Collector, Ground
from tidegate.collect.source import JobSpec, Reading, Subject, Task
from tidegate.documents import SqlDocuments
from tidegate.flow.gate import Allowance, CredentialLimits
from tidegate.settings import Settings
from tidegate.upstream import Answer, Request

JOBS, FIRST = 20_020, 20
PLENTY = 10**9
LIMITS = CredentialLimits(concurrency=1000, per_minute=PLENTY, floor=0)
SAID = Allowance(limit=PLENTY, remaining=PLENTY, window=4_000_000_000, resets_in_ms=3_600_000)
ANSWER = Answer(
    status=200,
    headers=CIMultiDictProxy(CIMultiDict[str]()),
    url="http://nowhere.test",
    received_at=datetime.now(UTC),
    body=b"{}",
    redirects=(),
    elapsed_ms=0.0,
)
REQUEST = Request(url="http://nowhere.test/", purpose="bench")


class NoNetwork:
    """A source and its upstream: a few jobs find many, and each of those is done at once."""

    name = "bench"
    planning_kinds = frozenset[str]()

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        del subject
        return [JobSpec(kind="FIND", resource=f"shelf:{n}", params={"n": n}) for n in range(FIRST)]

    def request(self, task: Task, secret: str) -> Request:
        del task, secret
        return REQUEST

    def read(self, task: Task, answer: Answer) -> Reading:
        del answer
        if task.spec.kind == "DO":
            return Reading(allowance=SAID)
        count, resource = (JOBS - FIRST) // FIRST, task.spec.resource
        return Reading(
            follow_ups=[JobSpec(kind="DO", resource=resource, page=str(n)) for n in range(count)], allowance=SAID
        )

    async def fetch(self, request: Request) -> Answer:
        del request
        return ANSWER

    async def secret_of(self, credential: str) -> str:
        return credential


async def measure() -> Section:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        async with open_parts(Settings(data_dir=Path(folder))) as parts:
            source = NoNetwork()
            ground = Ground(parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database))

            async def enrol() -> None:
                await parts.gate.enrol("token", pool="pool", limits=LIMITS)

            collector = Collector(ground, [source], caller=source, secrets=source, enrol_credentials=enrol)
            process = build_process(
                parts, handlers=collector.handlers, services=collector.services, duties={"recovery": collector.duty}
            )
            running = asyncio.create_task(process.run(heed_signals=False))
            began = time.perf_counter()
            run_id = await collector.orchestrator.begin("bench", Subject(user_id="u", login="u"), pool="pool")
            while (run := await collector.orchestrator.show(run_id)).ended_jobs < JOBS:
                await asyncio.sleep(0.05)
            rate = run.total_jobs / (time.perf_counter() - began)
            process.stop()
            await running
    figure = Figure(f"{JOBS:,} jobs, SQLite", f"{rate:,.0f} jobs/s", "≥ 15,000", rate >= 15_000)
    return Section("Engine", [figure], "Offer, permit, stream, claim, commit and settle in one process; no network.")
