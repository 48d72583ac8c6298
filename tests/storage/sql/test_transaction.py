"""A transaction is a function: committed whole or not at all, told once, run again when it must be."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from tidegate.core.clock import ManualClock
from tidegate.core.errors import ContractBroken, InvalidArgument
from tidegate.storage.sql import Database, Transaction

numbers = Table("numbers", MetaData(), Column("id", Integer, primary_key=True), Column("n", Integer, nullable=False))


@pytest.fixture
async def db(database_url: str) -> AsyncGenerator[Database]:
    async with await Database.open(database_url) as opened:
        await opened.transaction(lambda tx: numbers.create(tx.connection))
        yield opened


def put(tx: Transaction, key: int, n: int = 0) -> None:
    tx.execute(insert(numbers).values(id=key, n=n))


def count(tx: Transaction) -> int:
    return tx.execute(select(func.count()).select_from(numbers)).scalar_one()


class BoomError(Exception):
    pass


def put_and_fail(tx: Transaction, key: int) -> None:
    put(tx, key)
    raise BoomError


async def test_the_result_of_the_function_is_returned_after_the_commit(db: Database) -> None:
    def work(tx: Transaction, key: int, n: int) -> str:
        put(tx, key, n)
        return "done"

    assert await db.transaction(work, 1, 10) == "done"
    assert await db.read(count) == 1


async def test_an_error_rolls_back_and_is_raised(db: Database) -> None:
    with pytest.raises(BoomError):
        await db.transaction(put_and_fail, 1)
    assert await db.read(count) == 0


async def test_a_constraint_violation_is_raised_without_the_values(db: Database) -> None:
    await db.transaction(put, 1, 4711)
    with pytest.raises(IntegrityError) as broken:
        await db.transaction(put, 1, 4711)
    assert "4711" not in str(broken.value)


async def test_a_savepoint_undoes_only_its_own_changes(db: Database) -> None:
    def work(tx: Transaction) -> None:
        put(tx, 1)
        with suppress(IntegrityError), tx.savepoint():
            put(tx, 2)
            put(tx, 1)
        put(tx, 3)

    await db.transaction(work)
    assert await db.read(lambda tx: tx.execute(select(numbers.c.id).order_by(numbers.c.id)).scalars().all()) == [1, 3]


async def test_callbacks_run_after_the_commit_in_order_on_the_event_loop(db: Database) -> None:
    heard: list[Any] = []

    def work(tx: Transaction) -> None:
        put(tx, 1)
        tx.after_commit(lambda: heard.append(("first", threading.current_thread())))
        tx.after_commit(lambda: heard.append(("second", asyncio.get_running_loop())))

    await db.transaction(work)
    assert heard == [("first", threading.main_thread()), ("second", asyncio.get_running_loop())]


async def test_callbacks_do_not_run_after_a_rollback(db: Database) -> None:
    heard: list[str] = []

    def work(tx: Transaction) -> None:
        tx.after_commit(lambda: heard.append("callback"))
        tx.announce("topic")
        put_and_fail(tx, 1)

    db.subscribe("topic", lambda: heard.append("announced"))
    with pytest.raises(BoomError):
        await db.transaction(work)
    await db.transaction(put, 2)
    assert heard == []


async def test_a_failing_callback_does_not_undo_the_commit(db: Database) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    heard: list[str] = []

    def fail() -> None:
        raise BoomError

    def work(tx: Transaction) -> None:
        put(tx, 1)
        tx.after_commit(fail)
        tx.after_commit(lambda: heard.append("next"))

    await db.transaction(work)
    assert await db.read(count) == 1
    assert heard == ["next"]
    assert isinstance(told[0]["exception"], BoomError)


async def test_a_topic_is_announced_once_to_its_subscribers(db: Database) -> None:
    heard: list[str] = []

    def work(tx: Transaction, key: int) -> None:
        put(tx, key)
        tx.announce("topic")
        tx.announce("topic")

    stop = db.subscribe("topic", lambda: heard.append("topic"))
    db.subscribe("other", lambda: heard.append("other"))
    await db.transaction(work, 1)
    assert heard == ["topic"]
    stop()
    await db.transaction(work, 2)
    assert heard == ["topic"]


async def test_a_read_transaction_that_writes_is_refused_and_rolled_back(db: Database) -> None:
    with pytest.raises(ContractBroken, match="use `transaction`"):
        await db.read(put, 1)
    if db.dialect != "mysql":
        with pytest.raises(Exception, match=r"read-?only"):
            await db.read(lambda tx: tx.execute(text("INSERT INTO numbers VALUES (1, 1)")))
    assert await db.read(count) == 0


async def test_a_transaction_cannot_be_used_after_its_end(db: Database) -> None:
    kept = await db.transaction(lambda tx: tx)
    with pytest.raises(ContractBroken, match="after its function had returned"):
        kept.execute(select(1))


async def test_a_transaction_has_one_time(database_url: str) -> None:
    clock = ManualClock()
    async with await Database.open(database_url, clock=clock) as db:
        assert await db.transaction(lambda tx: tx.now) == datetime(2026, 1, 1, tzinfo=UTC)


async def test_many_rows_are_inserted_and_existing_ones_can_be_skipped(db: Database) -> None:
    await db.transaction(put, 5, 1)

    def work(tx: Transaction) -> None:
        rows = [{"id": key, "n": 0} for key in range(10)]
        tx.insert_many(numbers, rows, skip_existing=True)
        tx.insert_many(numbers, [])

    await db.transaction(work)
    assert await db.read(count) == 10
    assert await db.read(lambda tx: tx.execute(select(numbers.c.n).where(numbers.c.id == 5)).scalar_one()) == 1


async def test_matched_rows_are_counted_although_unchanged(db: Database) -> None:
    """MySQL counts changed rows unless it is asked otherwise; whether an update found its row must not depend on it."""
    await db.transaction(put, 1, 7)
    assert await db.transaction(lambda tx: tx.execute(update(numbers).values(n=7)).rowcount) == 1


async def test_concurrent_transactions_lose_no_update(db: Database) -> None:
    await db.transaction(put, 1, 0)

    def increase(tx: Transaction) -> None:
        row = tx.execute(select(numbers.c.n).where(numbers.c.id == 1).with_for_update()).scalar_one()
        tx.execute(update(numbers).where(numbers.c.id == 1).values(n=row + 1))

    await asyncio.gather(*(db.transaction(increase) for _ in range(60)))
    assert await db.read(lambda tx: tx.execute(select(numbers.c.n)).scalar_one()) == 60


async def test_closing_lets_running_transactions_finish_and_refuses_new_ones(database_url: str) -> None:
    db = await Database.open(database_url)
    await db.transaction(lambda tx: numbers.create(tx.connection))
    running = [asyncio.create_task(db.transaction(put, key)) for key in range(20)]
    await asyncio.sleep(0)  # each has begun

    await db.close()

    assert all(task.done() and not task.exception() for task in running)
    with pytest.raises(ContractBroken, match="was closed"):
        await db.transaction(put, 99)
    async with await Database.open(database_url) as again:
        assert await again.read(count) == 20


async def test_invalid_arguments_are_refused(db: Database) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        await db.transaction(count, timeout=timedelta(0))
    with pytest.raises(InvalidArgument, match="topic"):
        db.subscribe("", lambda: None)
    for nonsense in ({"connections": 0}, {"readers": -1}, {"busy_timeout": timedelta(0)}):
        with pytest.raises(InvalidArgument):
            await Database.open("sqlite:///x.db", **nonsense)  # pyright: ignore[reportArgumentType]


async def test_the_server_describes_itself(db: Database) -> None:
    server = await db.describe()
    assert server.product in ("sqlite", "postgresql", "mariadb")
    assert server.version[0].isdigit()
    assert server.capabilities
    assert not server.read_only


@pytest.mark.race
async def test_a_row_inserted_and_deleted_concurrently_is_locked_until_the_commit(db: Database) -> None:
    def take(tx: Transaction) -> tuple[int, bool]:
        row, is_new = tx.insert_or_lock(numbers, {"id": 1, "n": 7}, key="id")
        tx.execute(delete(numbers).where(numbers.c.id == 1))
        return row.n, is_new

    taken = await asyncio.gather(*(db.transaction(take) for _ in range(40)))

    assert taken == [(7, True)] * 40


async def test_of_concurrent_inserts_of_one_row_the_first_succeeds_and_the_others_read_it(db: Database) -> None:
    def make(tx: Transaction, n: int) -> tuple[int, bool]:
        row, is_new = tx.insert_or_lock(numbers, {"id": 1, "n": n}, key="id")
        return row.n, is_new

    made = await asyncio.gather(*(db.transaction(make, n) for n in range(20)))

    assert [is_new for _, is_new in made].count(True) == 1
    assert len({n for n, _ in made}) == 1
