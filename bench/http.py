# ruff: noqa: A005 - in this folder only, never imported by that name alone
"""Pages over HTTP, ten documents each, written: compared with taskiq, which does the same with fewer guarantees.

Both have one process, the same upstream, the same kind of server, and SQLite with the same settings. The Tidegate run
includes
finding the jobs, their permits, claims, fences, counters and the end of the run. Theirs is the drain alone: their jobs
are in the queue, and in their table, before the clock starts.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import msgspec
import uvloop

from bench.answers import ITEMS
from bench.engine import LIMITS, SAID
from bench.figures import Figure, Section
from bench.server import tcp_server
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.runs import Run
from tidegate.engine.source import JobSpec, Reading, Subject, Task
from tidegate.engine.source_cell import CollectDependencies, Collector
from tidegate.engine.upstream import Answer, Request, UpstreamClient, UpstreamSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.documents import Document, SqlDocuments

PAGES, PER_LIST = 5_000, 500
AT_ONCE = 100
"""Calls under way, for both."""
RUNS = 3
_PEER_PYTHON = Path(__file__).parent.parent / ".peers" / "bin" / "python"
_PEER = Path(__file__).parent / "peers" / "run_taskiq_pages.py"


class _Item(msgspec.Struct):
    id: str


_items = msgspec.json.Decoder(list[msgspec.Raw])
_item = msgspec.json.Decoder(_Item)


class Pages:
    """A source: lists with pages; each page has ten documents."""

    name = "bench"
    planning_kinds = frozenset({"LIST"})

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        del subject
        return [JobSpec(kind="LIST", resource=f"list:{n}", params={"page": n}) for n in range(PAGES // PER_LIST)]

    def request(self, task: Task, secret: str) -> Request:
        headers = {"Authorization": f"Bearer {secret}"}
        return Request(url=f"{self._upstream}/pages/{task.spec.params['page']}", purpose="bench", headers=headers)

    def read(self, task: Task, answer: Answer) -> Reading:
        resource = task.spec.resource
        if task.spec.kind == "LIST":
            first = task.spec.params["page"] * PER_LIST
            pages = range(first, first + PER_LIST)
            found = [JobSpec(kind="PAGE", resource=resource, page=str(n), params={"page": n}) for n in pages]
            return Reading(follow_ups=found, allowance=SAID)
        documents = [
            Document.of("item", _item.decode(raw).id, owner="u", resource=resource, body=raw, sweep=task.run_id)
            for raw in _items.decode(answer.body)
        ]
        return Reading(documents=documents, allowance=SAID)

    async def secret_of(self, credential: str) -> str:
        return credential


class Measured(msgspec.Struct, frozen=True):
    """One run: pages per second, and what one took of the process's CPU."""

    rate: float
    cpu_ms: float


async def measure() -> Section:
    """In turn, so that both meet the same moments of the machine."""
    ours: list[Measured] = []
    theirs: list[Measured] = []
    async with _upstream() as upstream:
        with tcp_server() as url:
            for _ in range(RUNS):
                theirs.append(await asyncio.to_thread(_taskiq, url, upstream))
                ours.append(await _tidegate(url, upstream))
    ratio = max(run.rate for run in ours) / max(run.rate for run in theirs)
    return Section(
        "HTTP",
        [
            Figure(f"taskiq: {PAGES:,} pages fetched and written", _told(theirs)),
            Figure(f"tidegate: {PAGES:,} pages found, fetched and written", _told(ours)),
            Figure("tidegate / taskiq, the best of each", f"{ratio:.2f}x", "≥ 1x", ratio >= 1),
        ],
        f"{ITEMS} documents on a page; {AT_ONCE} calls under way; SQLite; the best of {RUNS} runs each, in turn.",
    )


def _told(runs: Sequence[Measured]) -> str:
    rates, cpu_ms = [run.rate for run in runs], min(run.cpu_ms for run in runs)
    return f"{max(rates):,.0f}/s ({', '.join(f'{rate:,.0f}' for rate in rates)}), {cpu_ms:.2f} ms of CPU each"


@asynccontextmanager
async def _upstream() -> AsyncGenerator[str]:
    server = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.answers", stdin=PIPE, stdout=PIPE)
    assert server.stdout
    assert server.stdin
    port = int(await server.stdout.readline())
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stdin.close()
        await server.wait()


def _taskiq(url: str, upstream: str) -> Measured:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        path = Path(folder) / "peer.db"
        command = [str(_PEER_PYTHON), str(_PEER), url, str(PAGES), upstream, str(path), str(AT_ONCE)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    rate, cpu_s = done.stdout.split()[-2:]
    return Measured(float(rate), 1000 * float(cpu_s))


async def _tidegate(url: str, upstream: str) -> Measured:
    """The whole of one run."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        settings = Settings(data_dir=Path(folder), valkey_url=url, key_prefix=Path(folder).name)
        patience = UpstreamSettings(connections_per_host=AT_ONCE)
        async with open_context(settings) as parts, UpstreamClient(patience) as client:
            source, ended = Pages(upstream), asyncio.Event()
            documents = SqlDocuments(parts.database)

            async def register() -> None:
                limits = LIMITS.model_copy(update={"concurrency": AT_ONCE})
                await parts.gate.register("token", pool="pool", limits=limits)

            async def note_end(run: Run) -> None:
                assert run.succeeded_jobs == run.total_jobs == PAGES + PAGES // PER_LIST, run
                ended.set()

            collector = Collector(
                CollectDependencies(parts.database, parts.gate, parts.jobs, parts.owner, documents),
                [source],
                caller=client,
                secrets=source,
                register_credentials=register,
                finalizers=[note_end],
            )
            process = build_process(
                parts,
                handlers=collector.handlers,
                services=collector.services,
                leader_services={"recovery": collector.recovery_service},
            )
            running = asyncio.create_task(process.run())
            began, cpu = time.perf_counter(), time.process_time()
            await collector.orchestrator.begin("bench", Subject(user_id="u", login="u"), pool="pool")
            await ended.wait()
            rate, cpu_ms = PAGES / (time.perf_counter() - began), 1000 * (time.process_time() - cpu) / PAGES
            assert await documents.of("bench").count("item") == PAGES * ITEMS
            process.stop()
            await running
    return Measured(rate, cpu_ms)


async def _main(turns: int) -> None:
    """Measure without the peer, and print what a page costs."""
    async with _upstream() as upstream:
        with tcp_server() as url:
            print(_told([await _tidegate(url, upstream) for _ in range(turns)]))


if __name__ == "__main__":
    configure_logs(level="warning")
    uvloop.run(_main(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
