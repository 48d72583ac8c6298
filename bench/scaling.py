"""The scaling curve: worker processes and gate shards on a Valkey Cluster of three nodes and PostgreSQL."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Self

import msgspec
import psutil
from redis import Redis
from redis.crc import key_slot
from sqlalchemy import text
from tests.servers.sql import SqlServer, durable_server
from tests.servers.valkey import Cluster
from tests.waiting import until

from bench.costs import cpu_of_tree_s, wal_position
from bench.engine import LIMITS, SAID
from bench.figures import Figure, Section
from bench.processes import Running, cpu_s, running
from bench.scaling_worker import Load, collector_of
from bench.snapshot_reads import snapshot_bodies
from tidegate.connections import open_context
from tidegate.core.ids import new_id
from tidegate.engine.cells import cell_context
from tidegate.engine.source import Subject
from tidegate.primitives.gate import Admitted, Gate, Job, settlement
from tidegate.primitives.stream import Stream
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey.connection import connected
from tidegate.system import Context
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.cache import SnapshotCache
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.store import Refreshed

WORKERS, SHARDS = (1, 2, 4, 8), (1, 2, 4)
NODES, SLOTS = 3, 16384
RUNS, LISTS, JOBS = 8, 2, 2_000
"""Of all shards; and of each run."""
DOCUMENTS = 10
WITHIN = 0.2
SATURATED_IDLE, BUSY = 0.2, 0.9
"""In cores."""
SNAPSHOTS, ROUND = 600, 20
POOL_SIZES, POOL_JOBS, POOL_BATCH = (1, 10, 100, 1_000), 4_000, 20


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One measured point. CPU times are microseconds for each job."""

    workers: int
    shards: int
    rate: float
    """Jobs per second."""
    worker_us: float
    """Of all workers together."""
    valkey_us: tuple[float, ...]
    """Of each node."""
    sql_us: float
    others: float
    """Cores that were used by other programs meanwhile, this one among them."""
    idle: float
    """Cores that were idle."""
    wal_bytes: float
    disk_bytes: float
    """Growth of the database."""
    valkey_bytes: float
    """Network traffic of all nodes."""
    network_bytes: float
    """Of the loopback interface, that of other programs included."""

    @property
    def cores(self) -> float:
        """Cores that were used by the deployment or idle."""
        return self.rate * self.total_us / 1e6 + self.idle

    @property
    def limit(self) -> str:
        """What is used up."""
        if self.idle < SATURATED_IDLE:
            return "all cores"
        worker, node = (self.rate * us / 1e6 for us in (self.worker_us / self.workers, max(self.valkey_us)))
        return "each worker" if worker > BUSY else "a Valkey node" if node > BUSY else "waiting times"

    @property
    def total_us(self) -> float:
        """CPU time of all components for each job."""
        return self.worker_us + sum(self.valkey_us) + self.sql_us


class CostModel(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of a job by component, interpolated between the corners of the curve."""

    corners: dict[tuple[int, int], Cell]

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Self:
        """Use the cells with the fewest and the most workers and shards."""
        workers, shards = {cell.workers for cell in cells}, {cell.shards for cell in cells}
        at = {(cell.workers, cell.shards): cell for cell in cells}
        corners = [(w, s) for w in (min(workers), max(workers)) for s in (min(shards), max(shards))]
        return cls(corners={corner: at[corner] for corner in corners})

    def cost_us(self, workers: int, shards: int, component: Callable[[Cell], float]) -> float:
        """CPU time of one component for each job."""
        found = 0.0
        for (w, s), cell in self.corners.items():
            found += component(cell) * self._weight(workers, w, 0) * self._weight(shards, s, 1)
        return found

    def _weight(self, at: int, corner: int, axis: int) -> float:
        """How much a corner counts along an axis. More processes and shards make smaller groups, so costs grow."""
        least, most = (pick(each[axis] for each in self.corners) for pick in (min, max))
        if least == most:
            return 1.0
        share = (at - least) / (most - least)
        return share if corner == most else 1 - share

    def rate(self, workers: int, shards: int, cores: float) -> float:
        """Jobs per second: as many as the cores allow, one core for each worker, and one for the busiest node."""
        worker = self.cost_us(workers, shards, lambda cell: cell.worker_us)
        valkey = self.cost_us(workers, shards, lambda cell: sum(cell.valkey_us))
        sql = self.cost_us(workers, shards, lambda cell: cell.sql_us)
        busiest = -(-shards // NODES) / shards
        return 1e6 * min(cores / (worker + valkey + sql), workers / worker, 1 / (busiest * valkey))


class _Readings(msgspec.Struct, frozen=True):
    at_s: float
    worker_s: float
    valkey_s: tuple[float, ...]
    sql_s: float
    busy_s: float
    idle_s: float
    wal: int
    disk: int
    valkey_bytes: int
    network_bytes: int


async def measure() -> Section:
    """The curve, how well the model predicts it, and the unit costs that docs/guides/sizing.md uses."""
    server = durable_server("postgres")
    if server is None:
        return Section("Scaling", [Figure("the curve", "PostgreSQL is not on this machine")])
    cluster = Cluster()
    try:
        await _point(cluster, server, 1, 1)  # the first point warms the servers, and does not count
        cells = [await _point(cluster, server, workers, shards) for shards in SHARDS for workers in WORKERS]
        pages = await _point(cluster, server, 1, 1, documents=DOCUMENTS)
        snapshots = await _measure_snapshots(cluster, server)
        pools = [await _pool_cost(cluster, credentials) for credentials in POOL_SIZES]
    finally:
        cluster.stop()
    costs = CostModel.of(cells)
    return Section(
        "Scaling",
        [*(_figure(cell, costs) for cell in cells), *_unit_costs(cells[0], pages), *snapshots, *pools],
        f"{RUNS} runs of {LISTS} lists and {JOBS:,} jobs on durable PostgreSQL and a Valkey Cluster of {NODES} nodes, "
        "without files. A shard is a source with a gate of its own. CPU is that of the workers, the Valkey nodes (of "
        "the busiest) and of PostgreSQL for each job. The prediction interpolates the costs of the four corners and "
        "divides the cores, less those that other programs used, by their sum. The unit costs are those of one worker "
        "and one shard.",
    )


async def _point(cluster: Cluster, server: SqlServer, workers: int, shards: int, documents: int = 0) -> Cell:
    runs = RUNS // shards
    load = Load(shards=shard_names(shards), runs=runs, lists=LISTS, jobs=JOBS, documents=documents)
    return await measure_point(cluster, server, workers, load)


def shard_names(shards: int) -> tuple[str, ...]:
    """Names of sources whose keys lie on the nodes in turns."""
    candidates = (f"bench-{n}" for n in count())
    return tuple(next(each for each in candidates if _node_of(each) == n % NODES) for n in range(shards))


def _node_of(source: str) -> int:
    return key_slot(f"source-{source}".encode()) * NODES // SLOTS


async def measure_point(cluster: Cluster, server: SqlServer, workers: int, load: Load) -> Cell:
    """Run the load on an empty database and empty nodes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        nodes = [stack.enter_context(node.client()) for node in cluster.nodes]
        for node in nodes:
            node.flushall()
        url = server.url(await stack.enter_async_context(server.database()))
        settings = Settings(data_dir=folder, valkey_url=cluster.url, database_url=url, auto_migrate=True)
        context = await stack.enter_async_context(open_context(settings))
        processes = await stack.enter_async_context(_workers(workers, load, settings))
        collectors = {name: collector_of(cell_context(context, name), load.source(name)) for name in load.shards}
        for name in load.shards:
            await until(lambda name=name: _is_enrolled(context, name))
        read = _meter(processes, nodes, server, context.database)
        before = await read()
        for run in range(load.runs):
            for name, collector in collectors.items():
                subject = Subject(user_id=f"user-{name}-{run}", login=f"user-{run}")
                await collector.orchestrator.begin(name, subject, pool=name)
        await _ended(processes, load.total_runs)
        return _cell(workers, load, before, await read())


@asynccontextmanager
async def _workers(number: int, load: Load, settings: Settings) -> AsyncGenerator[list[Running]]:
    """Worker processes that are ready."""
    servers = (str(settings.data_dir), settings.valkey_url or "", settings.effective_database_url)
    command = (sys.executable, "-m", "bench.scaling_worker", msgspec.json.encode(load).decode(), *servers)
    async with AsyncExitStack() as stack:
        starting = [running(*command) for _ in range(number)]
        processes = await asyncio.gather(*(stack.enter_async_context(each) for each in starting))
        yield processes
        for process in processes:  # all at the same time, before the stack waits for each
            os.kill(process.pid, signal.SIGTERM)


async def _is_enrolled(context: Context, source: str) -> bool:
    return bool((await cell_context(context, source).gate.status(source)).credentials)


async def _ended(processes: list[Running], runs: int) -> None:
    """Return when so many runs have ended, whichever process says so."""
    left = runs
    reading = {asyncio.create_task(process.line()): process for process in processes}
    while left:
        done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            process = reading.pop(task)
            if not task.result():
                raise RuntimeError("a worker ended")
            left -= 1
            reading[asyncio.create_task(process.line())] = process
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


def _meter(
    processes: list[Running], nodes: list[Redis], server: SqlServer, database: Database
) -> Callable[[], Awaitable[_Readings]]:
    pids = [int(node.info("server")["process_id"]) for node in nodes]

    async def read() -> _Readings:
        machine: Any = psutil.cpu_times()
        stats = [node.info("stats") for node in nodes]
        idle_s = machine.idle + machine.iowait
        traffic = psutil.net_io_counters(pernic=True)["lo"]
        return _Readings(
            at_s=time.perf_counter(),
            worker_s=sum(cpu_s(process.pid) for process in processes),
            valkey_s=tuple(cpu_s(pid) for pid in pids),
            sql_s=cpu_of_tree_s(server.pid),
            busy_s=machine.user + machine.nice + machine.system + machine.irq + machine.softirq + machine.steal,
            idle_s=idle_s,
            wal=await database.read(wal_position),
            disk=await database.read(_database_size),
            valkey_bytes=sum(each["total_net_input_bytes"] + each["total_net_output_bytes"] for each in stats),
            network_bytes=traffic.bytes_sent,
        )

    return read


def _database_size(tx: Transaction) -> int:
    return int(tx.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def _cell(workers: int, load: Load, before: _Readings, after: _Readings) -> Cell:
    jobs, took_s = load.total_jobs, after.at_s - before.at_s
    worker_s, sql_s = after.worker_s - before.worker_s, after.sql_s - before.sql_s
    valkey_s = [b - a for a, b in zip(before.valkey_s, after.valkey_s, strict=True)]
    ours_s = worker_s + sql_s + sum(valkey_s)
    return Cell(
        workers=workers,
        shards=len(load.shards),
        rate=jobs / took_s,
        worker_us=1e6 * worker_s / jobs,
        valkey_us=tuple(1e6 * each / jobs for each in valkey_s),
        sql_us=1e6 * sql_s / jobs,
        others=(after.busy_s - before.busy_s - ours_s) / took_s,
        idle=(after.idle_s - before.idle_s) / took_s,
        wal_bytes=(after.wal - before.wal) / jobs,
        disk_bytes=(after.disk - before.disk) / jobs,
        valkey_bytes=(after.valkey_bytes - before.valkey_bytes) / jobs,
        network_bytes=(after.network_bytes - before.network_bytes) / jobs,
    )


async def _measure_snapshots(cluster: Cluster, server: SqlServer) -> list[Figure]:
    """What it costs to store snapshots for the first time, in rounds as the worker writes them."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        nodes = [stack.enter_context(node.client()) for node in cluster.nodes]
        url = server.url(await stack.enter_async_context(server.database()))
        settings = Settings(data_dir=folder, valkey_url=cluster.url, database_url=url, auto_migrate=True)
        context = await stack.enter_async_context(open_context(settings))
        cache = SnapshotCache(context.valkey, keep=timedelta(hours=1))
        now, bodies = datetime.now(UTC), snapshot_bodies(SNAPSHOTS)
        results = [
            Refreshed.of(SnapshotSubject("character", str(n)), 1, checked_at=now, body=body)
            for n, body in enumerate(bodies)
        ]
        read = _meter([], nodes, server, context.database)
        before, memory = await read(), _memory(nodes)
        for start in range(0, SNAPSHOTS, ROUND):
            await context.database.transaction(store.write_round, results[start : start + ROUND], True)
        after = await read()
        rows = await context.database.read(store.get_many, [each.subject for each in results])
        await cache.put_rows([(row, None) for row in rows.values()])
        memory = _memory(nodes) - memory
    stored = sum(len(each.body or b"") for each in results)
    return [
        Figure("unit cost of a snapshot: bytes of JSON", f"{sum(map(len, bodies)) / SNAPSHOTS:,.0f} bytes"),
        Figure("unit cost of a snapshot: bytes as stored", f"{stored / SNAPSHOTS:,.0f} bytes"),
        Figure("unit cost of a snapshot: CPU of SQL", f"{1e6 * (after.sql_s - before.sql_s) / SNAPSHOTS:,.0f} µs"),
        Figure("unit cost of a snapshot: WAL", f"{(after.wal - before.wal) / SNAPSHOTS:,.0f} bytes"),
        Figure("unit cost of a snapshot: disk", f"{(after.disk - before.disk) / SNAPSHOTS:,.0f} bytes"),
        Figure("unit cost of a snapshot: Valkey memory of a copy", f"{memory / SNAPSHOTS:,.0f} bytes"),
    ]


async def _pool_cost(cluster: Cluster, credentials: int) -> Figure:
    """What settling and dispatching costs in a pool of so many credentials, each with four calls at once."""
    async with connected(cluster.url) as valkey, AsyncExitStack() as stack:
        nodes = [stack.enter_context(node.client()) for node in cluster.nodes]
        pids = [int(node.info("server")["process_id"]) for node in nodes]
        unit = valkey.unit(new_id())
        stream = Stream(valkey, unit, "jobs")
        gate = Gate(valkey, unit, stream=stream.keys.stream, group=stream.settings.group, wake=unit.key("wake"))
        limits = LIMITS.model_copy(update={"concurrency": 4, "first_concurrency": 4})
        for n in range(credentials):
            await gate.register(f"token-{n}", pool="pool", limits=limits)
        await gate.enqueue([Job(job=str(n), pool="pool", run=str(n % 10)) for n in range(POOL_JOBS)])
        before_s, left, consumer = sum(map(cpu_s, pids)), POOL_JOBS, stream.consumer("bench")
        while left and (messages := await consumer.read(POOL_BATCH, within_s=1)):
            admitted = [Admitted.from_fields(each.id, each.fields, each.deliveries) for each in messages]
            left -= (await gate.settle([settlement(each, allowance=SAID) for each in admitted])).settled
            consumer.settled(each.message for each in admitted)
        took_s = sum(map(cpu_s, pids)) - before_s
    if left:
        raise RuntimeError(f"{left} jobs are left")
    settled = f"settled by up to {POOL_BATCH}"
    what = f"{POOL_JOBS:,} jobs of a pool with {credentials:,} credentials, {settled}: CPU of Valkey"
    return Figure(what, f"{1e6 * took_s / POOL_JOBS:,.0f} µs each")


def _memory(nodes: list[Redis]) -> int:
    return sum(int(node.info("memory")["used_memory"]) for node in nodes)


def _figure(cell: Cell, costs: CostModel) -> Figure:
    predicted = costs.rate(cell.workers, cell.shards, cell.cores)
    error = predicted / cell.rate - 1
    valkey = f"{sum(cell.valkey_us):.0f} ({max(cell.valkey_us):.0f})"
    return Figure(
        f"workers: {cell.workers}, shards: {cell.shards}",
        f"{cell.rate:,.0f} jobs/s; {cell.worker_us:.0f} + {valkey} + {cell.sql_us:.0f} µs; limited by {cell.limit}; "
        f"{cell.idle:.2f} cores idle, {cell.others:.2f} used by others; predicted {predicted:,.0f} ({error:+.0%})",
        f"predicted within {WITHIN:.0%}",
        abs(error) <= WITHIN,
    )


def _unit_costs(job: Cell, page: Cell) -> list[Figure]:
    figures: list[Figure] = []
    for name, cell in (("job", job), (f"job with {DOCUMENTS} documents", page)):
        figures += [
            Figure(f"unit cost of a {name}: CPU of a worker", f"{cell.worker_us:.0f} µs"),
            Figure(f"unit cost of a {name}: CPU of Valkey", f"{sum(cell.valkey_us):.0f} µs"),
            Figure(f"unit cost of a {name}: CPU of SQL", f"{cell.sql_us:.0f} µs"),
            Figure(f"unit cost of a {name}: WAL", f"{cell.wal_bytes:,.0f} bytes"),
            Figure(f"unit cost of a {name}: disk", f"{cell.disk_bytes:,.0f} bytes"),
            Figure(f"unit cost of a {name}: network", f"{cell.network_bytes:,.0f} bytes"),
        ]
    return figures
