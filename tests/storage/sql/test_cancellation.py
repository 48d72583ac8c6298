"""Whoever stops waiting leaves neither half a transaction nor a connection or thread that nobody can use."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.util import await_only

from tests.servers.sql import SERVERS, sql_server
from tests.waiting import is_pending
from tidegate.storage.sql import Database, Transaction


def make_table(tx: Transaction) -> None:
    tx.execute(text("CREATE TABLE numbers (n INTEGER)"))


def put(tx: Transaction) -> None:
    tx.execute(text("INSERT INTO numbers VALUES (1)"))


def count(tx: Transaction) -> int:
    return tx.execute(text("SELECT COUNT(*) FROM numbers")).scalar_one()


@pytest.fixture
async def file(tmp_path: Path) -> AsyncGenerator[Database]:
    async with await Database.open(f"sqlite:///{tmp_path / 'a.db'}") as db:
        await db.transaction(make_table)
        yield db


@pytest.fixture(params=SERVERS)
async def served(request: pytest.FixtureRequest) -> AsyncGenerator[Database]:
    server = sql_server(request.param)
    # One connection: if a test loses it, nothing works any more.
    async with server.database() as name, await Database.open(server.url(name), connections=1) as db:
        await db.transaction(make_table)
        yield db


async def test_a_cancelled_transaction_waiting_for_the_writer_is_withdrawn(file: Database) -> None:
    started, may_end = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        started.set()
        may_end.wait()

    holder = asyncio.create_task(file.transaction(hold))
    await asyncio.to_thread(started.wait)
    ran: list[bool] = []
    waiting = asyncio.create_task(file.transaction(lambda tx: ran.append(True)))
    await asyncio.sleep(0)  # it is in the queue
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_end.set()
    await holder
    await file.transaction(put)
    assert ran == []


async def test_a_cancelled_transaction_running_on_the_writer_is_rolled_back(file: Database) -> None:
    started, may_end = threading.Event(), threading.Event()
    heard: list[str] = []

    def slow(tx: Transaction) -> None:
        put(tx)
        tx.after_commit(lambda: heard.append("committed"))
        started.set()
        may_end.wait()

    running = asyncio.create_task(file.transaction(slow))
    await asyncio.to_thread(started.wait)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    may_end.set()
    await file.transaction(lambda tx: None)  # the writer is free again
    assert await file.read(count) == 0
    assert heard == []


async def test_closing_waits_for_abandoned_work_of_the_writer(tmp_path: Path) -> None:
    db = await Database.open(f"sqlite:///{tmp_path / 'a.db'}")
    started, may_end = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        started.set()
        may_end.wait()

    running = asyncio.create_task(db.transaction(slow))
    await asyncio.to_thread(started.wait)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    closing = asyncio.create_task(db.close())
    assert await is_pending(closing)
    may_end.set()
    await closing
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tidegate-sqlite")]


async def test_a_running_statement_is_abandoned_and_its_transaction_rolled_back(served: Database) -> None:
    started = asyncio.Event()
    sleep = "SELECT pg_sleep(60)" if served.dialect == "postgresql" else "SELECT SLEEP(60)"

    def slow(tx: Transaction) -> None:
        put(tx)
        started.set()
        tx.execute(text(sleep))

    running = asyncio.create_task(served.transaction(slow))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await served.read(count) == 0
    await served.transaction(put)


async def test_a_cancelled_wait_for_a_connection_is_withdrawn(served: Database) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    def hold(tx: Transaction) -> None:
        count(tx)
        started.set()
        await_only(may_end.wait())

    holder = asyncio.create_task(served.transaction(hold))
    await started.wait()
    waiting = asyncio.create_task(served.transaction(put))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_end.set()
    await holder
    assert await served.read(count) == 0


async def test_a_started_commit_is_completed_and_its_result_reported(served: Database) -> None:
    heard: list[str] = []
    returned = asyncio.Event()

    def work(tx: Transaction) -> None:
        put(tx)
        tx.after_commit(lambda: heard.append("committed"))
        asyncio.get_running_loop().call_soon(returned.set)

    running = asyncio.create_task(served.transaction(work))
    await returned.wait()  # the function has returned; the commit is on its way
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert heard == ["committed"]
    assert await served.read(count) == 1


async def test_many_cancellations_at_any_time_leave_the_database_usable(served: Database, file: Database) -> None:
    for db in (served, file):
        tasks = [asyncio.create_task(db.transaction(put)) for _ in range(30)]
        for turn, task in enumerate(tasks):
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        before = await db.transaction(count)  # behind whatever the writer still does for nobody
        await db.transaction(put)
        assert await db.read(count) == before + 1
