"""The whole path of a job, gate to settle, with a source whose answers need no network; each job's state is in SQL.

Everything counts: the jobs are found, written and offered while the clock runs, and it stops when the end of the run
has been handled. The servers are set as they come installed, so what is committed is safe. The peers only drain: their
jobs are in the queue before their clock starts, and what becomes of a job is written nowhere.
"""

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from string import ascii_lowercase
from zlib import crc32

import uvloop
from multidict import CIMultiDict, CIMultiDictProxy
from tests.servers.sql import SqlName, SqlServer, durable_server

from bench.costs import Costs, Meters
from bench.figures import Figure, Section
from bench.server import tcp_server
from bench.stream import PEER_JOBS, peer_rates
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.runs import Run
from tidegate.engine.source import JobSpec, Reading, Subject, Task
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.upstream import Answer, Permit, Request
from tidegate.primitives.gate import Allowance, CredentialLimits
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import Document, SqlDocuments

JOBS, LISTS, PER_PAGE = 40_000, 20, 1000
TARGETS: dict[SqlName, int] = {"sqlite": 22_000, "postgres": 15_000, "mariadb": 13_000}
NAMES: dict[SqlName, str] = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB"}
PLENTY = 10**9
LIMITS = CredentialLimits(concurrency=1000, per_minute=PLENTY, floor=0)
SAID = Allowance(limit=PLENTY, remaining=PLENTY, window=4_000_000_000, resets_in_ms=3_600_000)
ANSWER = Answer(
    status=200,
    headers=CIMultiDictProxy(CIMultiDict[str]()),
    url="http://nowhere.test",
    received_at=datetime.now(UTC),
    body=b"{}",
    elapsed_ms=0.0,
)
_TEXT = "".join(Random(1).choices(ascii_lowercase, k=20_000))
"""Text that does not compress to nothing, as a repeated letter would."""
REQUEST = Request(url="http://nowhere.test/", purpose="bench")


class NoNetwork:
    """A source and its upstream: lists are read page by page, and each page finds a thousand jobs, done at once.

    Each of these jobs finds so many documents of 1 KB.
    """

    planning_kinds = frozenset({"LIST"})

    def __init__(self, jobs: int, *, lists: int = LISTS, name: str = "bench", documents: int = 0) -> None:
        self.name, self._lists, self._documents = name, lists, documents
        self._pages = jobs // lists // PER_PAGE
        self.total = lists * self._pages * (PER_PAGE + 1)

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        del subject
        return [JobSpec(kind="LIST", resource=f"list:{n}", page="0") for n in range(self._lists)]

    def request(self, task: Task, secret: str) -> Request:
        del task, secret
        return REQUEST

    def read(self, task: Task, answer: Answer) -> Reading:
        del answer
        resource = task.spec.resource
        if task.spec.kind == "DO":
            return Reading(allowance=SAID, documents=[self._document(task, n) for n in range(self._documents)])
        page = int(task.spec.page)
        specs = [JobSpec(kind="DO", resource=resource, page=f"{page}-{n}") for n in range(PER_PAGE)]
        if page + 1 < self._pages:
            specs.append(JobSpec(kind="LIST", resource=resource, page=str(page + 1)))
        return Reading(follow_ups=specs, allowance=SAID)

    def _document(self, task: Task, number: int) -> Document:
        resource, name = task.spec.resource, f"{task.user_id}:{task.spec.resource}:{task.spec.page}:{number}"
        start = crc32(name.encode()) % (len(_TEXT) - 960)
        body = {"name": name, "text": _TEXT[start : start + 960]}
        return Document.of("ITEM", name, owner=task.user_id, resource=resource, body=body)

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        del request, permit
        return ANSWER

    async def secret_of(self, credential: str) -> str:
        return credential


async def measure() -> Section:
    with tcp_server() as url:
        peers = await peer_rates(url)
    best = max(peers, key=lambda name: peers[name])
    measured: dict[SqlName, list[Costs | None]] = {
        name: [await measure_on(name, JOBS) for _ in range(3)] for name in NAMES
    }
    ours = max(run.rate for run in measured["sqlite"] if run)
    ratio = ours / peers[best]
    return Section(
        "Engine",
        [
            *(_figure(name, [run for run in runs if run]) for name, runs in measured.items()),
            Figure(f"best peer ({best}): drain of {PEER_JOBS:,} no-op jobs", f"{peers[best]:,.0f}/s"),
            Figure("tidegate on SQLite / best peer", f"{ratio:.1f}x", "≥ 6x", ratio >= 6),
        ],
        "Offer, permit, stream, claim, commit and settle in one process, without network; the best of three runs each.",
    )


def _figure(name: SqlName, runs: Sequence[Costs]) -> Figure:
    what = f"{JOBS:,} jobs, {NAMES[name]}"
    if not runs:
        return Figure(what, "not on this machine")
    fastest, target = max(runs, key=lambda run: run.rate), TARGETS.get(name)
    told = f"{fastest.rate:,.0f} jobs/s, for each {fastest.each()}"
    return Figure(what, told) if target is None else Figure(what, told, f"≥ {target:,}", fastest.rate >= target)


async def measure_on(name: SqlName, jobs: int) -> Costs | None:
    """One run on an empty database; None if this machine has no such server."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        if name == "sqlite":
            return await _measure(jobs, Settings(data_dir=Path(folder)), None)
        server = durable_server(name)
        if server is None:
            return None
        async with server.database() as database:
            url = server.url(database)
            return await _measure(jobs, Settings(data_dir=Path(folder), database_url=url, auto_migrate=True), server)


async def _measure(jobs: int, settings: Settings, server: SqlServer | None) -> Costs:
    async with open_context(settings) as parts:
        source, ended = NoNetwork(jobs), asyncio.Event()
        environment = CollectDependencies(
            parts.database, parts.gate, parts.jobs, parts.owner, SqlDocuments(parts.database)
        )

        async def register() -> None:
            await parts.gate.register("token", pool="pool", limits=LIMITS)

        async def note_end(run: Run) -> None:
            assert (run.succeeded_jobs, run.total_jobs) == (source.total, source.total), run
            ended.set()

        collector = Collector(
            environment, [source], caller=source, secrets=source, register_credentials=register, finalizers=[note_end]
        )
        process = build_process(
            parts,
            handlers=collector.handlers,
            services=collector.services,
            leader_services={"recovery": collector.recovery_service},
        )
        running = asyncio.create_task(process.run())
        gc.collect()
        meters = await Meters.start(parts.valkey, parts.database, None if server is None else server.pid)
        await collector.orchestrator.begin("bench", Subject(user_id="u", login="u"), pool="pool")
        await ended.wait()
        costs = await meters.read(source.total)
        process.stop()
        await running
        return costs


async def _main() -> None:
    """Measure some servers without the peers, in turns, and print what each job costs."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=_main.__doc__)
    parser.add_argument("servers", nargs="*", metavar="server", help=", ".join(NAMES))
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--turns", type=int, default=1)
    given = parser.parse_args()
    for name in (given.servers or list(NAMES)) * given.turns:
        costs = await measure_on(name, given.jobs)
        print(f"{name}: {'not on this machine' if costs is None else costs}", flush=True)


if __name__ == "__main__":
    configure_logs(level="warning")
    uvloop.run(_main())
