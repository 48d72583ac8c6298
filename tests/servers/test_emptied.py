"""A database that serves a second test is as good as new, or does not serve it."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.servers.migrated import migrated_database
from tests.servers.sql import SERVERS, SqlName
from tidegate.core.errors import TidegateError
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event

pytestmark = pytest.mark.parametrize("server", SERVERS)


async def write(url: str, *statements: str) -> None:
    def work(tx: Transaction) -> None:
        for each in statements:
            tx.execute(text(each))

    async with await Database.open(url) as database:
        await database.transaction(work)


async def numbers(url: str) -> list[int]:
    async with await Database.open(url) as database:
        await database.transaction(outbox.add, Event("kind", "key", {}))
        return [row.id for row in await database.read(lambda tx: outbox.pending_page(tx, limit=10))]


async def test_data_is_deleted_and_ids_restart(server: SqlName, tmp_path: Path):
    async with migrated_database(server, tmp_path) as first:
        assert await numbers(first) == [1]
        assert await numbers(first) == [1, 2]
    async with migrated_database(server, tmp_path) as second:
        assert await numbers(second) == [1]
        await write(second, "DELETE FROM outbox_events")
    async with migrated_database(server, tmp_path) as third:
        assert await numbers(third) == [1]

    assert first == second == third


@pytest.mark.full
@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE another (n INTEGER)",
        "ALTER TABLE outbox_events ADD COLUMN another INTEGER",
        "ALTER TABLE outbox_events RENAME TO another",
        "DELETE FROM schema_version",
        "UPDATE schema_version SET version_num = 'another'",
    ],
)
async def test_a_modified_server_is_not_reused(server: SqlName, tmp_path: Path, change: str):
    async with migrated_database(server, tmp_path) as changed:
        await write(changed, change)
    async with migrated_database(server, tmp_path) as other:
        assert other != changed
        assert await numbers(other) == [1]


async def test_a_late_writer_is_disconnected(server: SqlName, tmp_path: Path):
    async with migrated_database(server, tmp_path) as first:
        database = await Database.open(first)
        began, loop = asyncio.Event(), asyncio.get_running_loop()

        def work(tx: Transaction) -> None:
            assert not began.is_set(), "it is tried again"
            outbox.add(tx, Event("kind", "key", {}))
            loop.call_soon(began.set)
            tx.execute(text({"postgres": "SELECT pg_sleep(60)", "mariadb": "SELECT SLEEP(60)"}[server]))

        writing = asyncio.create_task(database.transaction(work))
        await began.wait()
    async with migrated_database(server, tmp_path) as second:
        assert second == first
        assert await numbers(second) == [1]
        with pytest.raises((AssertionError, TidegateError)):
            await writing
        await database.close()
