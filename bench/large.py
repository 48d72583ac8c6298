"""A deployment that has worked for three months: 100,000 runs, 2 million jobs, and what else they leave behind.

The rows are as the engine writes them, and are written past it: a few minutes of inserting instead of months of work.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import asyncpg

RUNS, JOBS = 100_000, 2_000_000
ACTIVE, DAYS = 200, 90
BIG_JOBS = 20_000
"""Jobs of the newest run, which is under way."""
PRODUCTS, LETTERS, SCHEDULES, CREDENTIALS, HOSTS = 100_000, 3_000, 2_000, 50, 40
KINDS = {
    "github": ["USER_BASIC", "USER_EVENTS", "REPO_ISSUES", "REPO_PRS", "REPO_COMMITS", "REPO_REVIEWS"],
    "crawl": ["LISTING", "mini_shop", "detail", "option"],
}
_MINUTE_MS, _DAY_MS = 60_000, 86_400_000
Rows = Iterable[Sequence[Any]]


class Writer(Protocol):
    """Writes many rows, however the server takes them fastest."""

    def moment(self, ms_ago: float) -> Any:
        """So long before now, as the server wants it."""
        ...

    async def write(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        """Write rows of values in the order of `columns`."""
        ...

    async def finish(self) -> None:
        """Maintenance that a server does automatically."""
        ...


class SqliteWriter:
    """Into a file that has its tables."""

    def __init__(self, file: Path) -> None:
        self._file, self._now = file, datetime.now(UTC).replace(tzinfo=None)

    def moment(self, ms_ago: float) -> str:
        """See `Writer`."""
        return (self._now - timedelta(milliseconds=ms_ago)).isoformat(sep=" ", timespec="microseconds")

    async def write(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        """See `Writer`."""
        with closing(sqlite3.connect(self._file)) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            places = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)
            connection.commit()

    async def finish(self) -> None:
        """It has no statistics unless ANALYZE is run, which this benchmark does not."""


class PostgresWriter:
    """Into a database that has its tables."""

    def __init__(self, url: str) -> None:
        self._url, self._now = url, datetime.now(UTC)

    def moment(self, ms_ago: float) -> datetime:
        """See `Writer`."""
        return self._now - timedelta(milliseconds=ms_ago)

    async def write(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        """See `Writer`."""
        connection: Any = await asyncpg.connect(self._url)
        await connection.copy_records_to_table(table, records=rows, columns=columns, timeout=900)
        await connection.close()

    async def finish(self) -> None:
        """Autovacuum would come within minutes."""
        connection: Any = await asyncpg.connect(self._url)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()


@dataclass(frozen=True)
class _Run:
    """Of one run, what its jobs and its row have to agree about."""

    id: int
    source: str
    status: str
    jobs: int
    begun_ms: float
    """How long ago."""

    @property
    def is_active(self) -> bool:
        return self.status == "running"

    def state_of(self, number: int) -> str:
        """Of its job of this number."""
        if self.is_active:
            if number < self.jobs * 4 // 10:
                return "failed" if number % 97 == 96 else "succeeded"
            return {0: "running", 1: "ready"}.get(number % 50, "enqueued")
        if self.status == "canceled":
            return "canceled" if number > self.jobs // 2 else "succeeded"
        place = (self.id * 31 + number) % 1000
        return (
            "failed"
            if place < 3 or (self.status == "failed" and not number)
            else "unavailable"
            if place < 5
            else "succeeded"
        )

    def counts(self) -> dict[str, int]:
        """Jobs by state."""
        found: dict[str, int] = {}
        for number in range(self.jobs):
            state = self.state_of(number)
            found[state] = found.get(state, 0) + 1
        return found


async def fill(writer: Writer, *, runs: int = RUNS, jobs: int = JOBS) -> None:
    """Write all of it."""
    usual, over = divmod(jobs - BIG_JOBS, runs - 1)
    begun = [_run(number, runs, usual + (number <= over)) for number in range(1, runs + 1)]
    await writer.write("collection_runs", _RUN_COLUMNS, (_run_row(run, writer.moment) for run in begun))
    await writer.write("page_jobs", _JOB_COLUMNS, _job_rows(begun, writer.moment))
    crawled = [(run, first) for run, first in _with_first_jobs(begun) if run.source == "crawl"][-runs // 10 :]
    await writer.write("job_executions", _EXECUTION_COLUMNS, _execution_rows(crawled, writer.moment))
    await _fill_others(writer, begun[-1].id, runs)
    await writer.finish()


def _run(number: int, runs: int, usual: int) -> _Run:
    source = "crawl" if number % 5 == 0 else "github"
    status = "failed" if number % 40 == 7 else "canceled" if number % 67 == 9 else "completed"
    if number > runs - ACTIVE:
        status = "running"
    begun_ms = (runs - number + 1) / runs * DAYS * _DAY_MS
    return _Run(number, source, status, BIG_JOBS if number == runs else usual, begun_ms)


_RUN_COLUMNS = (
    *("id", "source", "user_id", "login", "pool", "options", "status", "triggered_by", "active_key"),
    *("created_at", "started_at", "completed_at", "total_jobs", "succeeded_jobs", "failed_jobs", "canceled_jobs"),
    *("last_error", "calls", "unchanged_calls", "documents"),
)


def _run_row(run: _Run, moment: Callable[[float], Any]) -> tuple[Any, ...]:
    user, counts = user_of(run.id, run.source), run.counts()
    ended = None if run.is_active else moment(max(0.0, run.begun_ms - 10 * _MINUTE_MS))
    login = user if run.source == "github" else host_of(run.id)
    return (
        *(run.id, run.source, user, login, pool_of(run.id, run.source), "{}", run.status, "scheduled"),
        f"{run.source}:{user}:{run.id}" if run.is_active else None,
        *(moment(run.begun_ms), moment(run.begun_ms), ended, run.jobs),
        *(
            counts.get("succeeded", 0) + counts.get("unavailable", 0),
            counts.get("failed", 0),
            counts.get("canceled", 0),
        ),
        *("502 Bad Gateway" if counts.get("failed") else None, run.jobs, run.jobs // 3, run.jobs * 20),
    )


_JOB_COLUMNS = (
    *("id", "run_id", "job_type", "resource_key", "page_key", "spec", "status", "fence", "attempt_count"),
    *("max_attempts", "not_before", "next_cursor", "created_at", "started_at", "completed_at", "last_error"),
)
_BEGUN = ("succeeded", "failed", "unavailable", "running", "ready")


def _job_rows(begun: Sequence[_Run], moment: Callable[[float], Any]) -> Iterator[tuple[Any, ...]]:
    for run, first in _with_first_jobs(begun):
        kinds, created, spent = KINDS[run.source], moment(run.begun_ms), run.begun_ms
        for number in range(run.jobs):
            status, kind = run.state_of(number), kinds[number % len(kinds)]
            tries = 0 if status not in _BEGUN else 5 if status == "failed" else 2 if number % 20 == 19 else 1
            started_ms = max(0.0, spent - number * 200)
            started = moment(started_ms) if tries else None
            ended = status not in ("enqueued", "running", "ready")
            yield (
                *(first + number, run.id, kind, f"repository:owner-{run.id}/thing-{number % 7}", str(number)),
                json.dumps({"kind": kind, "resource": f"repository:owner-{run.id}/thing-{number % 7}"}),
                *(status, tries, tries, 5, moment(-60_000.0) if status == "ready" else None, None, created, started),
                moment(started_ms - 100 - number % 900) if ended else None,
                "502 Bad Gateway" if status == "failed" else None,
            )


def _with_first_jobs(begun: Sequence[_Run]) -> Iterator[tuple[_Run, int]]:
    """Each run, with the number of its first job."""
    first = 1
    for run in begun:
        yield run, first
        first += run.jobs


_EXECUTION_COLUMNS = ("job_id", "fence", "credential", "started_at", "ended_at", "outcome", "reason")


def _execution_rows(crawled: Sequence[tuple[_Run, int]], moment: Callable[[float], Any]) -> Iterator[tuple[Any, ...]]:
    for run, first in crawled:
        for number in range(run.jobs):
            if run.state_of(number) in ("succeeded", "failed"):
                at = moment(run.begun_ms)
                yield (first + number, 1, "reader", at, at, "succeeded", None)


async def _fill_others(writer: Writer, last_run: int, runs: int) -> None:
    moment = writer.moment
    columns = ("event_id", "kind", "event_key", "payload", "state", "attempts", "created_at", "last_error")
    dead = (
        (f"dead-{n}", "run.ended", f"user-{n}", '{"run_id": 1}', "dead", 20, moment(n * 1000), "no such table")
        for n in range(LETTERS)
    )
    await writer.write("outbox_events", columns, dead)
    columns = ("source", "user_id", "login", "options", "cron", "timezone", "next_at", "created_at")
    schedules = (
        ("github", f"user-{n}", f"user-{n}", "{}", "0 3 * * *", "UTC", moment(-n * 1000), moment(0))
        for n in range(SCHEDULES)
    )
    await writer.write("collection_schedules", columns, schedules)
    allowances = ((f"account-{n}", "api.example", f"user-{n}", f"pool-{n % 30}", None) for n in range(CREDENTIALS))
    await writer.write("credential_allowances", ("name", "audience", "account", "pool", "user_id"), allowances)
    columns = ("name", "kind", "allowance", "owner", "details", "version", "state", "created_at", "changed_at")
    credentials = (
        (f"token-{n}", "token", f"account-{n}", f"user-{n}", "{}", 1, "valid", moment(0), moment(0))
        for n in range(CREDENTIALS)
    )
    await writer.write("credentials", columns, credentials)
    await _fill_crawl(writer, last_run, runs)


async def _fill_crawl(writer: Writer, last_run: int, runs: int) -> None:
    moment, body = writer.moment, b"\x28\xb5\x2f\xfd" + b"x" * 300
    columns = (
        *("run_id", "job_id", "site", "host", "product_id", "shop_id", "stage", "hash", "body", "received_at"),
        *("state", "attempts", "not_before", "reason", "processed_at", "applied_as"),
    )
    raws = (
        (
            *(
                last_run - n % (runs // 10),
                n + 1,
                "marketplace",
                host_of(n),
                f"product-{n}",
                f"shop-{n % 500}",
                "detail",
            ),
            *("0" * 16, body, moment(n * 60_000), "failed" if n % 300 == 5 else "processed", 1, moment(n * 60_000)),
            *("no price" if n % 300 == 5 else None, moment(n * 60_000), 1),
        )
        for n in range(PRODUCTS)
    )
    await writer.write("crawl_raws", columns, raws)
    columns = (
        "host",
        "product_id",
        "shop_id",
        "site",
        "detail_content",
        "applied",
        "first_seen_at",
        "changed_at",
        "gone_at",
    )
    products = (
        (
            host_of(n),
            f"product-{n}",
            f"shop-{n % 500}",
            "marketplace",
            '{"title": "a thing"}',
            1,
            moment(0),
            moment(0),
            None,
        )
        for n in range(PRODUCTS)
    )
    await writer.write("crawl_products", columns, products)
    columns = (
        "host",
        "robots_state",
        "redirects",
        "failures",
        "refusals",
        "crawl_delay_ms",
        "rests_until",
        "changed_at",
    )
    hosts = (
        (f"shop-{n}.example", "none", 0, 0, n % 3, 1000, moment(-3_600_000) if n % 4 == 0 else None, moment(0))
        for n in range(HOSTS)
    )
    await writer.write("crawl_hosts", columns, hosts)


def user_of(number: int, source: str) -> str:
    """Whose run this is: users and crawls come again every few weeks."""
    return f"{'user' if source == 'github' else 'crawl'}-{number % 20_000}"


def pool_of(number: int, source: str) -> str:
    """Which credentials serve it."""
    return f"pool-{number % 30}" if source == "github" else "crawl"


def host_of(number: int) -> str:
    """A marketplace; most is found at one of them."""
    return f"shop-{number % HOSTS if number % 4 == 0 else 0}.example"
