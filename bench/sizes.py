"""What waiting work takes up: in the memory of the Valkey server, in its file, and in the database."""

import sqlite3
import tempfile
from pathlib import Path

from bench.figures import Figure, Section
from tidegate.connections import open_context
from tidegate.engine import runs
from tidegate.engine.gate_sync import to_gate_jobs
from tidegate.engine.runs import NewRun
from tidegate.engine.source import JobSpec, Subject
from tidegate.settings import Settings
from tidegate.system import Context

RUNS, JOBS_EACH, AT_ONCE = 100, 1000, 500
JOBS = RUNS * JOBS_EACH
_NOTE = (
    f"{JOBS:,} jobs of {RUNS} runs, as GitHub's are, all of them waiting; SQLite and the embedded server. Jobs that "
    "are done take no memory, and stay in the database."
)


async def measure() -> Section:
    with tempfile.TemporaryDirectory() as folder:
        async with open_context(Settings(data_dir=Path(folder))) as parts:
            file = Path(folder) / "tidegate.db"
            before, stored = await _memory(parts), _size(file)
            for number in range(RUNS):
                await _begin(parts, number)
            memory, stored = await _memory(parts) - before, _size(file) - stored
        kept = sum(each.stat().st_size for each in Path(folder).rglob("*.aof*"))
    figures = [
        Figure("Valkey: memory for each waiting job", f"{memory / JOBS:.0f} bytes"),
        Figure("Valkey: append-only file for each, before it is rewritten", f"{kept / JOBS:.0f} bytes"),
        Figure("SQLite: file for each job, indexes included", f"{stored / JOBS:.0f} bytes"),
    ]
    return Section("Sizes", figures, _NOTE)


async def _begin(parts: Context, number: int) -> None:
    login = f"user-number-{number}"
    specs = [JobSpec(kind="REPO_ISSUES", resource=f"repo:{login}/repository-{n}") for n in range(JOBS_EACH)]
    subject = Subject(user_id=login, login=login, options={})
    _, jobs = await parts.database.transaction(runs.begin, NewRun("github", subject, "everybody", "manual", specs))
    for start in range(0, len(jobs), AT_ONCE):
        await parts.gate.enqueue(to_gate_jobs(jobs[start : start + AT_ONCE], now=parts.database.clock.now()))


async def _memory(parts: Context) -> int:
    return int((await parts.valkey.execute("INFO", "memory"))["used_memory"])


def _size(file: Path) -> int:
    """Of the file alone, when everything is in it."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return file.stat().st_size
