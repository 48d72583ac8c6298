"""How many rows `tidegate sync` copies in a second, to each destination, and what a sync of nothing costs.

The documents are issues of about 2.6 KB, the size of GitHub's, in the SQLite store; each transaction has 500, as the
committer writes them. The machine is shared, so the CPU time of the process is given beside the time on the clock.
"""

import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.servers.sql import durable_server

from bench.figures import Figure, Section
from tidegate.cli.running import tune_gc
from tidegate.core.clock import ManualClock
from tidegate.storage.documents import Document, DocumentStore, SqlDocuments
from tidegate.storage.documents.sync.destination import parse_destination
from tidegate.storage.documents.sync.synchronizer import SyncOrder, sync
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import migrate
from tidegate.systems.github.kinds import COLUMNS

DOCUMENTS, EACH_TRANSACTION, CHANGED = 100_000, 500, 1_000
TARGET = 50_000
_ACCOUNT = {"login": "octocat", "id": 583231, "node_id": "MDQ6VXNlcjU4MzIzMQ==", "type": "User"} | {
    f"{name}_url": f"https://api.github.com/users/octocat/{name}"
    for name in ("avatar", "followers", "following", "gists", "starred", "subscriptions", "organizations", "repos")
}


@dataclass(frozen=True)
class _Spent:
    rows: int
    wall_s: float
    cpu_s: float


async def measure() -> Section:
    figures: list[Figure] = []
    tune_gc()  # as the command does
    with tempfile.TemporaryDirectory() as folder:
        async with _filled(Path(folder)) as (store, database, clock):
            for name in ("duckdb", "postgresql", "parquet", "jsonl"):
                url = await _destination(name, Path(folder))
                figures += _figures(name, *[await _timed(store, url) for _ in range(2)])
            await _change(database, clock)
            changed = await _timed(store, f"duckdb:{folder}/duckdb")
            figures.append(
                Figure(
                    f"DuckDB: a sync after {CHANGED:,} documents changed", f"{changed.rows:,} rows, {_times(changed)}"
                )
            )
    return Section("Sync", figures, (__doc__ or "").partition("\n\n")[2].strip().replace("\n", " "))


def _figures(name: str, first: _Spent, again: _Spent) -> list[Figure]:
    speed, by_cpu = first.rows / first.wall_s, first.rows / first.cpu_s
    is_duckdb = name == "duckdb"
    target, met = (f"≥ {TARGET:,}/s", speed >= TARGET) if is_duckdb else ("", None)
    shown = f"{speed:,.0f} rows/s; {by_cpu:,.0f} in a second of CPU time"
    return [
        Figure(f"{name}: first sync of {first.rows:,} rows", shown, target, met),
        Figure(f"{name}: the same again, nothing changed", f"{again.rows} rows, {_times(again)}"),
    ]


def _times(spent: _Spent) -> str:
    return f"{spent.wall_s:.2f} s, {spent.cpu_s:.2f} s of CPU time"


async def _timed(store: DocumentStore, url: str) -> _Spent:
    order = SyncOrder(to=parse_destination(url), kinds={"issue": COLUMNS["issue"]})
    wall, cpu = time.perf_counter(), time.process_time()
    report = await sync(store, order)
    return _Spent(report.written, time.perf_counter() - wall, time.process_time() - cpu)


async def _destination(name: str, folder: Path) -> str:
    if name != "postgresql":
        return f"{name}:{folder / name}"
    server = durable_server("postgres")
    assert server is not None
    await server.admin("CREATE DATABASE warehouse")
    return server.url("warehouse")


@asynccontextmanager
async def _filled(folder: Path) -> AsyncGenerator[tuple[DocumentStore, Database, ManualClock]]:
    url, clock = f"sqlite:///{folder / 'tidegate.db'}", ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with await Database.open(url, clock=clock) as database:
        await migrate(database)
        store = SqlDocuments(database).of("github")
        for start in range(0, DOCUMENTS, EACH_TRANSACTION):
            await _write(store, database, clock, range(start, start + EACH_TRANSACTION), "opened")
        yield store, database, clock


async def _change(database: Database, clock: ManualClock) -> None:
    store = SqlDocuments(database).of("github")
    step = DOCUMENTS // CHANGED
    for start in range(0, DOCUMENTS, step * EACH_TRANSACTION):
        await _write(store, database, clock, range(start, start + step * EACH_TRANSACTION, step), "changed")


async def _write(store: DocumentStore, database: Database, clock: ManualClock, numbers: range, title: str) -> None:
    clock.advance(timedelta(milliseconds=1))
    staged = await store.stage([_issue(number, title) for number in numbers])
    await database.transaction(staged.apply)


def _issue(number: int, title: str) -> Document:
    body = {
        **{"id": number, "number": number, "title": f"{title} {number}", "state": "open", "locked": False},
        **{"user": _ACCOUNT, "author_association": "NONE", "labels": [{"id": 1, "name": "bug", "color": "d73a4a"}]},
        **{"assignees": [_ACCOUNT], "milestone": None, "created_at": "2024-01-01T00:00:00Z", "comments": 3},
        **{"updated_at": "2024-02-01T00:00:00Z", "closed_at": None, "html_url": "https://github.com/octocat/hello/1"},
        **{"state_reason": None, "reactions": {"total_count": 1, "+1": 1}, "body": "lorem ipsum " * 70},
    }
    return Document.of("issue", str(number), owner="octocat", resource="repo:octocat/hello", body=body)
