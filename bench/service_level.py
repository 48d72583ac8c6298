"""The whole service level on one machine: 450 calls/s of 300 KB, with 1,000 reads/s beside them.

Everything runs as a user would run it, each in a process of its own: `tidegate simulate game`, a Valkey server,
`tidegate work`, `tidegate serve`, and the readers. More is wanted than the limits allow: the prefetch asks for subjects
as fast as it may, and some of the reads are of unknown subjects. Nothing was fetched before, so every refresh
writes a body and its history.
"""

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from tests.servers.kafka import broker
from tests.servers.sql import SqlName, durable_server

from bench.figures import Figure, Section
from bench.processes import TIDEGATE, Meter, Running, percentile, running
from bench.server import tcp_server
from bench.service_readers import Plan, Told
from tidegate.connections import open_database
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.settings import KafkaSettings
from tidegate.systems.snapshots.tables import snapshots

FOR_S = 60.0
WARM_S = 6.0
"""Before it counts: the first second grants nothing, and the readers' subjects have to be there."""
RATE = 450
LEAST = 0.99 * RATE
"""The first and the last moment are cut anywhere."""
READS_PER_S, UNKNOWN_PER_S = 1000.0, 150.0
LOW_PER_S = 400
KNOWN = 500
FIRST_LOW, FIRST_UNKNOWN = 100_000, 1_000_000
NAMES: dict[SqlName, str] = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
KAFKA_FOR_S = 600.0
WORKER_MS = 1.2
"""Most CPU time of the worker for each refresh."""
_LOAD = (
    f"300 KB in each answer; {UNKNOWN_PER_S:.0f} HIGH/s and {LOW_PER_S} LOW/s wanted of the {RATE}/s that may be; "
    f"{READS_PER_S:,.0f} reads/s beside. Simulator, Valkey, worker, server and readers share the cores."
)


class Level(msgspec.Struct, frozen=True):
    """The results of the measured time."""

    for_s: float
    calls: int
    broken: int
    most_in_a_second: int
    told: Told
    cpu_s: dict[str, float]
    """Of each process."""


async def measure() -> Section:
    """On SQLite, and on PostgreSQL where this machine has it."""
    figures: list[Figure] = []
    for name, called in NAMES.items():
        level = await measure_on(name, FOR_S if name == "sqlite" else FOR_S / 3)
        if level is None:
            figures.append(Figure(f"{called}: calls/s", "not on this machine"))
        elif name == "sqlite":
            figures += _figures(called, level)
        else:  # for comparison: its server shares the cores too
            figures += [Figure(each.what, each.measured) for each in _figures(called, level)]
    return Section(
        "Service level",
        figures,
        _LOAD,
    )


async def measure_with_kafka() -> Section:
    """Ten minutes on PostgreSQL, with the events on Kafka."""
    called, level = "PostgreSQL and Kafka", None
    try:
        kafka = broker().settings()
    except pytest.skip.Exception as missing:
        why = str(missing)
    else:
        why = "PostgreSQL is not on this machine"
        level = await measure_on("postgres", KAFKA_FOR_S, _on_kafka(kafka))
    figures = [Figure(f"{called}: calls/s", why)] if level is None else _figures(called, level)
    return Section(
        "Service level on Kafka", figures, f"Like the service level, {KAFKA_FOR_S / 60:.0f} minutes. {_LOAD}"
    )


def _on_kafka(kafka: KafkaSettings) -> dict[str, str]:
    return {
        "TIDEGATE_SNAPSHOTS__TRANSPORT": "kafka",
        "TIDEGATE_SNAPSHOTS__KAFKA__SERVERS": kafka.servers,
        "TIDEGATE_SNAPSHOTS__KAFKA__PREFIX": kafka.prefix,
        "TIDEGATE_SNAPSHOTS__KAFKA__REPLICATION": str(kafka.replication),
    }


async def measure_on(name: SqlName, for_s: float, transport: Mapping[str, str] | None = None) -> Level | None:
    """One run on an empty database, with settings of another transport; None if this machine has no such server."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        surroundings = {"TIDEGATE_DATA_DIR": folder, **(transport or {})}
        if name == "sqlite":
            return await _measure(surroundings, for_s)
        server = durable_server(name)
        if server is None:
            return None
        async with server.database() as database:
            return await _measure({**surroundings, "TIDEGATE_DATABASE_URL": server.url(database)}, for_s)


async def _measure(surroundings: Mapping[str, str], for_s: float) -> Level:
    game = (TIDEGATE, "simulate", "game", "--json", "--missing", "0", "--subjects", "2000000")
    with tcp_server() as valkey_url:
        async with running(*game) as simulator, Redis.from_url(valkey_url) as valkey:
            settings = {**surroundings, "TIDEGATE_VALKEY_URL": valkey_url, **_settings(simulator.said)}
            await _seed(settings, round(LOW_PER_S * (for_s + WARM_S)))
            if "TIDEGATE_SNAPSHOTS__TRANSPORT" in settings:
                await _create_topics(settings)
            async with _deployment(settings) as (worker, server):
                pids = {"simulator": simulator.pid, "worker": worker.pid, "server": server.pid}
                async with _readers(server, valkey_url, for_s=WARM_S, unknown_from=FIRST_UNKNOWN // 2) as warming:
                    await warming.rest()
                async with _readers(server, valkey_url, for_s=for_s, unknown_from=FIRST_UNKNOWN) as readers:
                    await asyncio.to_thread(admin, simulator.said["url"], "clear")
                    meter, of_valkey = Meter(pids), await _valkey_cpu_s(valkey)
                    await readers.line()
                    report = await asyncio.to_thread(admin, simulator.said["url"], "report")
                    cpu = meter.read() | {"Valkey": await _valkey_cpu_s(valkey) - of_valkey}
                    told = msgspec.json.decode(await readers.rest(), type=Told)
    return Level(
        for_s=report["cost"]["wall_s"],
        calls=report["calls"],
        broken=report["broken"],
        most_in_a_second=report["most_in_a_second"],
        told=told,
        cpu_s=cpu | {"readers": told.cpu_s},
    )


async def _create_topics(settings: Mapping[str, str]) -> None:
    command = (TIDEGATE, "snapshots", "topics", "--create")
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **settings}, stdout=DEVNULL)
    if await process.wait():
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")


@asynccontextmanager
async def _deployment(settings: Mapping[str, str]) -> AsyncGenerator[tuple[Running, Running]]:
    """One process that works, and one that answers."""
    async with (
        running(TIDEGATE, "work", "--json", settings=settings) as worker,
        running(TIDEGATE, "serve", "--port", "0", "--json", settings=settings) as server,
    ):
        yield worker, server


def _settings(game: Mapping[str, Any]) -> dict[str, str]:
    return {
        "TIDEGATE_LOG__LEVEL": "warning",
        "TIDEGATE_SNAPSHOTS__GAME__URL": game["url"],
        "TIDEGATE_SNAPSHOTS__GAME__API_KEY": game["api_key"],
        "TIDEGATE_SNAPSHOTS__PREFETCH__RATE": str(LOW_PER_S),
        "TIDEGATE_SNAPSHOTS__PREFETCH__EVENING_RATE": str(LOW_PER_S),
        "TIDEGATE_SNAPSHOTS__PREFETCH__DAILY_BUDGET": "1000000000",
        "TIDEGATE_AUTO_MIGRATE": "true",
    }


async def _seed(surroundings: Mapping[str, str], low: int) -> None:
    """Subjects that are due, and were never fetched."""
    url = surroundings.get("TIDEGATE_DATABASE_URL")
    settings = Settings(data_dir=Path(surroundings["TIDEGATE_DATA_DIR"]), database_url=url, auto_migrate=True)
    async with open_database(settings) as database:
        await database.transaction(_insert_due, low)


def _insert_due(tx: Transaction, low: int) -> None:
    empty = {"kind": "character", "size": 0, "version": 0, "checks": 0, "changes": 0}
    due = tx.now - timedelta(hours=1)
    rows = [{**empty, "key": str(n), "next_due_at": due} for n in range(FIRST_LOW, FIRST_LOW + low)]
    for begin in range(0, low, 1000):
        tx.insert_many(snapshots, rows[begin : begin + 1000], skip_existing=True)


@asynccontextmanager
async def _readers(server: Running, valkey_url: str, *, for_s: float, unknown_from: int) -> AsyncGenerator[Running]:
    plan = Plan(
        port=int(server.said["url"].rpartition(":")[2]),
        valkey_url=valkey_url,
        prefix="tidegate",
        for_s=for_s,
        known=KNOWN,
        unknown_from=unknown_from,
        reads_per_s=READS_PER_S,
        unknown_per_s=UNKNOWN_PER_S,
    )
    command = (sys.executable, "-m", "bench.service_readers", msgspec.json.encode(plan).decode())
    async with running(*command) as readers:
        yield readers


def admin(url: str, what: str) -> dict[str, Any]:
    """Ask a simulator for its `report`, or to `clear` it."""
    method = "GET" if what == "report" else "POST"
    request = urllib.request.Request(f"{url}/admin/{what}", method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"{}")


async def _valkey_cpu_s(valkey: Redis) -> float:
    used = await valkey.info("cpu")
    return used["used_cpu_user"] + used["used_cpu_sys"]


def _figures(called: str, level: Level) -> list[Figure]:
    told, rate = level.told, level.calls / level.for_s
    p50_ms, read_ms, p99_ms = (1000 * percentile(told.reads_s, share) for share in (0.5, 0.95, 0.99))
    done_s = percentile(told.refreshes_s, 0.95)
    ours_ms = 1000 * (level.cpu_s["worker"] + level.cpu_s["server"]) / level.calls
    worker_ms = 1000 * level.cpu_s["worker"] / level.calls
    others = ", ".join(f"{name} {100 * each / level.for_s:.0f} %" for name, each in level.cpu_s.items())
    return [
        Figure(
            f"{called}: calls of 300 KB, for {level.for_s:.0f} s", f"{rate:,.0f}/s", f"≥ {LEAST:,.0f}/s", rate >= LEAST
        ),
        Figure(
            f"{called}: most calls in any second; calls beyond a limit",
            f"{level.most_in_a_second}; {level.broken}",
            "≤ 500; 0",
            level.most_in_a_second <= 500 and not level.broken,
        ),
        Figure(
            f"{called}: {len(told.reads_s):,} reads, p50 / p95 / p99",
            f"{p50_ms:.1f} / {read_ms:.1f} / {p99_ms:.1f} ms",
            "p95 < 20 ms",
            read_ms < 20 and not told.refused,
        ),
        Figure(
            f"{called}: {len(told.refreshes_s):,} HIGH refreshes, from the read to the notification, p50 / p95",
            f"{percentile(told.refreshes_s, 0.5):.2f} / {done_s:.2f} s",
            "p95 < 3 s",
            done_s < 3 and not told.unanswered,
        ),
        Figure(
            f"{called}: CPU of all Tidegate processes per refresh, planning and reads included",
            f"{ours_ms:.2f} ms, the worker {worker_ms:.2f} ms",
            f"the worker ≤ {WORKER_MS} ms",
            worker_ms <= WORKER_MS,
        ),
        Figure(f"{called}: share of one core", others),
    ]
