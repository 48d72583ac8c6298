"""Processes begin, end, cancel, retry and delete runs of the same resources."""

import asyncio
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import delete, func, select

from tests.engine.batches import assert_counted
from tests.engine.claims_process import entry, shared_resources
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_database
from tests.servers.sql import SqlName
from tidegate.engine import claims, runs
from tidegate.engine.source import Subject
from tidegate.engine.tables import page_jobs, resource_claims
from tidegate.storage.sql import Database, Transaction

ROOT = Path(__file__).parents[2]
PROCESSES, ROUNDS = 3, 80
MOST_DEADLOCKS = {"postgres": 0, "mariadb": PROCESSES * ROUNDS // 20}
"""On InnoDB, insertions into the same gap can meet in a cycle in spite of the lock order, in about one run of ten. The
transaction is repeated; a wrong order of locks shows in many more of them."""


def deadlocks(tx: Transaction) -> int:
    """How many deadlocks the server has ended so far."""
    if tx.dialect == "postgresql":
        tx.execute_sql("SELECT pg_stat_force_next_flush()")
        counted = tx.execute_sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return counted.scalar_one()
    return int(tx.execute_sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").one()[1])


async def start(url: str, seed: int) -> WarmProcess:
    command = (sys.executable, "-m", "tests.engine.claims_process", url, str(seed), str(ROUNDS))
    process = await start_warm(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert await next_line(process) == b"ready\n"
    return process


async def next_line(process: WarmProcess) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


async def play(process: WarmProcess) -> bytes:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    return await next_line(process)


def waiting(tx: Transaction) -> int:
    job = page_jobs.c
    return tx.execute(select(func.count()).where(job.awaits_run.is_not(None), job.status == "enqueued")).scalar_one()


@pytest.mark.every_server
@pytest.mark.race
@pytest.mark.parametrize("server", ["postgres", "mariadb"])
async def test_processes_share_no_resource_and_no_transaction_deadlocks(server: SqlName, tmp_path: Path):
    async with migrated_database(server, tmp_path) as url, await Database.open(url) as database:
        before = await database.read(deadlocks)
        processes = [await start(url, seed) for seed in range(PROCESSES)]

        assert await asyncio.gather(*map(play, processes)) == [b"done\n"] * PROCESSES

        assert await asyncio.gather(*(process.wait() for process in processes)) == [0] * PROCESSES
        assert await database.read(deadlocks) - before <= MOST_DEADLOCKS[server]
        assert await database.read(shared_resources) == []
        assert await database.read(waiting) == 0
        for run in await database.read(runs.active):
            await assert_counted(database, run.id)


def new_run(login: str) -> runs.NewRun:
    return runs.NewRun("shelves", Subject(user_id=login, login=login), "pool", "manual", [entry("shelf:1")])


def holders(tx: Transaction) -> list[int]:
    return list(tx.execute(select(resource_claims.c.run_id)).scalars())


def delete_claims(url: str) -> None:
    """Delete all claims in a transaction of another connection, for a thread of its own."""

    async def run() -> None:
        async with await Database.open(url) as database:
            await database.transaction(lambda tx: tx.execute(delete(resource_claims)).rowcount)

    asyncio.run(run())


@pytest.mark.every_server
async def test_a_claim_that_is_deleted_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The retention rule deletes the claims of a run while another run claims the resource.

    PostgreSQL does not lock a row that an insertion finds; MariaDB does, and SQLite has one writer at a time.
    """
    async with migrated_database("postgres", tmp_path) as url, await Database.open(url) as database:
        first, _ = await database.transaction(runs.begin, new_run("ada"))
        locked = claims._rows  # pyright: ignore[reportPrivateUsage]
        attempts = list[int]()

        def delete_and_lock(tx: Transaction, keys: Sequence[claims.Key]) -> dict[claims.Key, int]:
            if not attempts:
                deleting = threading.Thread(target=delete_claims, args=(url,))
                deleting.start()
                deleting.join()
            attempts.append(len(keys))
            return locked(tx, keys)

        monkeypatch.setattr(claims, "_rows", delete_and_lock)
        second, offered = await database.transaction(runs.begin, new_run("bob"))

        assert attempts == [1, 1]
        assert [job.run_id for job in offered] == [second], "it collects the resource itself"
        assert await database.read(holders) == [second]
        assert first != second
