"""What goes wrong between us and a server: repaired where it can be, told in plain words where it cannot."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, insert, select, text, update
from sqlalchemy.util import await_only

from tests.servers.proxy import Proxy
from tests.servers.sql import SERVERS, SqlServer, sql_server
from tests.waiting import is_pending
from tidegate.core.errors import CommitUnknown, DatabaseUnavailable, ServerRefused
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.engine import Server

numbers = Table(
    "numbers",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("n", Integer, nullable=False),
    mysql_engine="InnoDB",
)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> SqlServer:
    return sql_server(request.param)


@pytest.fixture
async def name(server: SqlServer) -> AsyncGenerator[str]:
    async with server.database() as name:
        yield name


@pytest.fixture
async def db(server: SqlServer, name: str) -> AsyncGenerator[Database]:
    async with await Database.open(server.url(name)) as opened:
        await opened.transaction(make_table)
        yield opened


def make_table(tx: Transaction) -> None:
    numbers.create(tx.connection)
    tx.execute(insert(numbers), [{"id": 1, "n": 0}, {"id": 2, "n": 0}])


def add(tx: Transaction, key: int, by: int = 1) -> None:
    tx.execute(update(numbers).where(numbers.c.id == key).values(n=numbers.c.n + by))


def values(tx: Transaction) -> list[int]:
    return list(tx.execute(select(numbers.c.n).order_by(numbers.c.id)).scalars())


async def test_a_deadlock_victim_is_repeated(db: Database) -> None:
    """Two take the same rows in opposite order, each sure that the other has its first: the server must kill one."""
    first_lock = {1: asyncio.Event(), 2: asyncio.Event()}
    runs: list[int] = []

    async def cross(mine: int, other: int) -> None:
        # Both must hold their first lock before they ask for the second, so the function waits for the other one.
        def work(tx: Transaction) -> None:
            runs.append(mine)
            add(tx, mine)
            first_lock[mine].set()
            await_only(first_lock[other].wait())
            add(tx, other)

        await db.transaction(work)

    await asyncio.gather(cross(1, 2), cross(2, 1))

    assert await db.read(values) == [2, 2]
    assert len(runs) > 2


async def test_a_serialisation_failure_is_repeated() -> None:
    """Only PostgreSQL reports them; the locks of the others make one of the two wait instead."""
    runs: list[int] = []
    server = sql_server("postgres")

    def work(tx: Transaction) -> None:
        tx.execute(text("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
        seen = values(tx)
        runs.append(seen[0])
        if len(runs) == 1:
            await_only(db.transaction(add, 1, 10))
        tx.execute(update(numbers).where(numbers.c.id == 1).values(n=seen[0] + 1))

    async with server.database() as name, await Database.open(server.url(name)) as db:
        await db.transaction(make_table)
        await db.transaction(work)
        assert await db.read(values) == [11, 0]
    assert runs == [0, 10]


async def test_endless_conflicts_end_in_a_retryable_error(tmp_path: Path) -> None:
    path = tmp_path / "busy.db"
    moment = timedelta(milliseconds=1)
    async with await Database.open(f"sqlite:///{path}", busy_timeout=moment, conflicts_within=moment) as db:
        await db.transaction(make_table)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailable, match="10 times in a row"):
            await db.transaction(add, 1)
        other.execute("ROLLBACK")
        other.close()
        await db.transaction(add, 1)
        assert await db.read(values) == [1, 0]


async def test_a_file_locked_by_another_process_is_waited_for(tmp_path: Path) -> None:
    """The other process holds the write lock longer than one try waits for it."""
    path = tmp_path / "shared.db"
    async with await Database.open(f"sqlite:///{path}", busy_timeout=timedelta(milliseconds=20)) as db:
        await db.transaction(make_table)
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLD_THE_LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdout
        assert holder.stdin
        assert await asyncio.to_thread(holder.stdout.readline) == b"locked\n"

        waiting = asyncio.create_task(db.transaction(add, 1, 1))
        assert await is_pending(waiting)
        holder.stdin.close()  # the other process commits

        await waiting
        assert await db.read(values) == [101, 0]
        await asyncio.to_thread(holder.wait)
        holder.stdout.close()


_HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE numbers SET n = n + 100 WHERE id = 1")
print("locked", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
"""


async def test_a_write_transaction_on_a_file_is_exclusive_from_its_first_read(tmp_path: Path) -> None:
    """Else another process could write between its read and its write, and it would have to be run again."""
    path = tmp_path / "a.db"

    def work(tx: Transaction) -> str:
        values(tx)
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            return str(error)
        finally:
            other.close()
        return "the other one may write"

    async with await Database.open(f"sqlite:///{path}") as db:
        await db.transaction(make_table)
        assert await db.transaction(work) == "database is locked"


async def test_reads_continue_while_a_writer_is_busy(tmp_path: Path) -> None:
    async with await Database.open(f"sqlite:///{tmp_path / 'a.db'}") as db:
        await db.transaction(make_table)
        writing, may_end = threading.Event(), threading.Event()

        def write_slowly(tx: Transaction) -> None:
            add(tx, 1)
            writing.set()
            may_end.wait()

        writer = asyncio.create_task(db.transaction(write_slowly))
        await asyncio.to_thread(writing.wait)
        assert await db.read(values) == [0, 0]
        may_end.set()
        await writer
        assert await db.read(values) == [1, 0]


async def test_a_connection_that_died_in_the_pool_is_replaced(server: SqlServer, name: str) -> None:
    async with Proxy(server.port) as wire, await Database.open(server.url(name, port=wire.port)) as db:
        await db.transaction(make_table)
        await asyncio.gather(*(db.read(values) for _ in range(5)))  # several lie in the pool
        wire.cut()
        await db.transaction(add, 1)
        assert await db.read(values) == [1, 0]


async def test_a_transaction_whose_backend_was_killed_is_repeated(server: SqlServer, db: Database) -> None:
    runs: list[int] = []

    def work(tx: Transaction) -> None:
        add(tx, 1)
        if not runs:
            mine = "SELECT pg_backend_pid()" if tx.dialect == "postgresql" else "SELECT CONNECTION_ID()"
            runs.append(tx.execute(text(mine)).scalar_one())
            kill = f"SELECT pg_terminate_backend({runs[0]})" if tx.dialect == "postgresql" else f"KILL {runs[0]}"
            await_only(server.admin(kill))
        add(tx, 2)

    await db.transaction(work)
    assert await db.read(values) == [1, 1]


async def test_an_unavailable_server_is_reported_and_used_again_when_it_returns(server: SqlServer, name: str) -> None:
    async with Proxy(server.port) as wire, await Database.open(server.url(name, port=wire.port)) as db:
        await db.transaction(make_table)
        await wire.refuse()
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                await db.transaction(add, 1)
        with pytest.raises(DatabaseUnavailable):
            await Database.open(server.url(name, port=wire.port))
        await wire.listen()
        await db.transaction(add, 1)
        assert await db.read(values) == [1, 0]


async def test_a_connection_lost_during_the_commit_has_an_unknown_outcome(server: SqlServer, name: str) -> None:
    """The commit did happen, and nobody could tell us: it is not run again, and those who listen are told to look."""
    heard: list[str] = []

    def work(tx: Transaction) -> None:
        add(tx, 1)
        tx.after_commit(lambda: heard.append("committed"))
        tx.announce("topic")

    async with Proxy(server.port) as wire, await Database.open(server.url(name, port=wire.port)) as db:
        await db.transaction(make_table)
        db.subscribe("topic", lambda: heard.append("look"))
        wire.cut_after(b"COMMIT;" if db.dialect == "postgresql" else b"COMMIT")
        with pytest.raises(CommitUnknown):
            await db.transaction(work)
        assert heard == ["look"]
    async with await Database.open(server.url(name)) as again:
        assert await again.read(values) == [1, 0]


async def test_a_silent_server_is_treated_as_dead(server: SqlServer, db: Database) -> None:
    sleep = "SELECT pg_sleep(60)" if db.dialect == "postgresql" else "SELECT SLEEP(60)"
    with pytest.raises(DatabaseUnavailable):
        await db.transaction(lambda tx: tx.execute(text(sleep)), timeout=timedelta(milliseconds=50))
    await db.transaction(add, 1)
    assert await db.read(values) == [1, 0]


async def test_a_wrong_password_is_reported_with_the_remedy_and_without_the_password(
    server: SqlServer, name: str
) -> None:
    with pytest.raises(ServerRefused, match="Correct them") as refusal:
        await Database.open(server.url(name, password="hunter2"))
    assert "hunter2" not in str(refusal.value)


async def test_an_unknown_database_is_reported(server: SqlServer) -> None:
    with pytest.raises(ServerRefused, match="no such database"):
        await Database.open(server.url("t_nobody_made_this"))


async def test_a_read_only_server_is_refused_at_the_start_and_later(server: SqlServer, name: str, db: Database) -> None:
    postgres = db.dialect == "postgresql"
    change = (
        f"ALTER DATABASE {name} SET default_transaction_read_only = {{}}" if postgres else "SET GLOBAL read_only = {}"
    )
    await server.admin(change.format("on" if postgres else "1"))
    try:
        with pytest.raises(ServerRefused, match="read-only"):
            await Database.open(server.url(name))
        if not postgres:  # there the setting is for new connections
            with pytest.raises(ServerRefused, match="read-only"):
                await db.transaction(add, 1)
    finally:
        await server.admin(change.format("off" if postgres else "0"))
    await db.transaction(add, 1)
    assert await db.read(values) == [1, 0]


@pytest.mark.parametrize(
    ("product", "version", "fits"),
    [
        ("sqlite", "3.34.1", False),
        ("sqlite", "3.35.0", True),
        ("postgresql", "12.19", False),
        ("postgresql", "13.0", True),
        ("postgresql", "18beta1", True),
        ("mysql", "8.0.15", False),
        ("mysql", "8.0.16", True),
        ("mariadb", "10.5.27", False),
        ("mariadb", "10.6.0", True),
        ("mariadb", "11.4.2", True),
    ],
)
def test_an_outdated_server_is_refused(product: str, version: str, fits: bool) -> None:
    server = Server(product, version, frozenset(), read_only=False)
    if fits:
        server.require_usable("x")
    else:
        with pytest.raises(ServerRefused, match="Upgrade the server"):
            server.require_usable("x")


async def test_a_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ServerRefused, match="folder exists"):
        await Database.open(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")


async def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_text("Dear reader, " * 1000)
    with pytest.raises(ServerRefused, match="no SQLite database"):
        await Database.open(f"sqlite:///{path}")
