"""The page of the operator's questions: its SQL finds what the commands tell, and the commands print what it shows."""

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tests.docs.pages import ROOT, Block, blocks_of
from tests.engine.busy_day import fill
from tests.servers.migrated import on_sqlite
from tidegate.connections import build_context
from tidegate.engine.api.quotas import waiting_report
from tidegate.engine.commands import report_text
from tidegate.engine.reports.kinds import failing_kinds, processing_times, retry_counts
from tidegate.engine.reports.states import jobs_by_state, queues, runs_by_state, slow_jobs
from tidegate.primitives.gate import CredentialRecord, Gate, Job, PoolRecord
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey

PAGE = ROOT / "docs" / "guides" / "operators-questions.md"
BLOCKS = blocks_of(PAGE)
SERVERS = {"-- SQLite": "sqlite", "-- PostgreSQL": "postgresql", "-- MySQL, MariaDB": "mysql"}
TOO_LONG = timedelta(minutes=10)
MINUTES_20 = 20 * 60_000

Rows = Sequence[Sequence[Any]]


@pytest.mark.every_server
async def test_the_sql_of_the_page_returns_what_the_commands_print(database: Database):
    await database.transaction(fill)
    since = database.clock.now() - timedelta(days=1)
    failing = (await database.read(failing_kinds, since)).kinds
    pools = await database.read(queues)
    told: dict[str, Rows] = {
        "runs": [(one.state, one.runs, one.first, one.last) for one in (await database.read(runs_by_state)).states],
        "jobs": [(one.source, one.state, one.jobs) for one in (await database.read(jobs_by_state)).states],
        "failing": [
            (one.source, one.kind, one.jobs, one.failed, one.runs, one.last_job, one.last_error) for one in failing
        ],
        "slow": [
            (one.id, one.run_id, one.login, one.kind, one.resource, one.attempts, _moment(one.started_at))
            for one in (await database.read(slow_jobs, TOO_LONG)).jobs
        ],
        "waiting": [(one.pool, one.runs, one.waiting, one.retrying, _moment(one.next_retry_at)) for one in pools],
        "rests": [
            (pool.pool, one.credential, one.bucket, one.remaining, _moment(one.resets_at), _moment(one.blocked_until))
            for pool in pools
            for one in pool.rests
        ],
        "times": [
            (one.source, one.kind, one.jobs, one.p50_s, one.p95_s, one.max_s)
            for one in (await database.read(processing_times, since)).kinds
        ],
        "retries": [
            (one.source, one.kind, one.jobs, one.retried, one.retries, one.most)
            for one in (await database.read(retry_counts, since)).kinds
        ],
    }
    dialect = await database.read(_dialect)
    statements = [block for block in BLOCKS if block.language == "sql" and _server_of(block) in (dialect, None)]

    assert len(statements) == len(told)
    for (question, rows), block in zip(told.items(), statements, strict=True):
        found, expected = await database.read(_rows, block.text), [tuple(row) for row in rows]
        assert found, f"{question}: nothing to compare"
        if "ORDER BY" in block.text.splitlines()[-1]:
            assert found == expected, f"{question}, {block.place}"
        else:
            assert sorted(found) == sorted(expected), f"{question}, {block.place}"


@pytest.mark.every_server
@on_sqlite
async def test_the_commands_print_the_output_of_the_page(database: Database, embedded: Valkey):
    await database.transaction(fill)
    gate = build_context(Settings(), embedded, database).gate
    await _keep_waiting(gate)
    since = database.clock.now() - timedelta(days=1)
    questions: dict[str, Callable[[], Awaitable[Any]]] = {
        "runs": lambda: database.read(runs_by_state),
        "jobs": lambda: database.read(jobs_by_state),
        "failing": lambda: database.read(failing_kinds, since),
        "slow": lambda: database.read(slow_jobs, TOO_LONG),
        "waiting": lambda: waiting_report(database, gate),
        "times": lambda: database.read(processing_times, since),
        "retries": lambda: database.read(retry_counts, since),
    }

    printed = {name: _printed(await ask(), database.clock.now()) for name, ask in questions.items()}

    shown = [block.text for block in BLOCKS if block.language == "text"]
    assert [_without_times(each) for each in printed.values()] == [_without_times(each) for each in shown]


@pytest.mark.parametrize("name", report_text.TITLES)
def test_every_question_is_on_the_page_as_command_request_and_sql(name: str):
    text = PAGE.read_text()

    assert f".venv/bin/tidegate report {name}\n" in text
    assert f"`GET /v1/reports/{name}`" in text


async def _keep_waiting(gate: Gate) -> None:
    """Mona's token was told to rest; the jobs of the crawl have their permits."""
    rest = CredentialRecord(credential="mona", bucket="core", blocked_ms=MINUTES_20)
    await gate.remind(PoolRecord(pool="github", started=0, running=0, notes=[rest]))
    await gate.register("mona", pool="github")
    await gate.enqueue([Job(job=f"g{n}", pool="github", run="6") for n in range(25)])


def _printed(report: Any, now: datetime) -> str:
    console = Console(file=StringIO(), width=200, highlight=False)
    report_text.show(console, report, now)
    assert isinstance(console.file, StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def _without_times(text: str) -> str:
    return re.sub(r"(?:[A-Z][a-z]{2} \d+ )?\d\d:\d\d(?::\d\d)?", "TIME", text)


def _server_of(block: Block) -> str | None:
    return SERVERS.get(block.text.partition("\n")[0])


def _dialect(tx: Transaction) -> str:
    return tx.dialect


def _rows(tx: Transaction, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(_plain(value) for value in row) for row in tx.execute_sql(sql.replace("%", "%%"))]


def _plain(value: Any) -> Any:
    """Numbers as such, to the millisecond; moments as texts without a zone."""
    if isinstance(value, datetime):
        return _moment(value)
    return round(float(value), 3) if isinstance(value, Decimal | float) else value


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}"
