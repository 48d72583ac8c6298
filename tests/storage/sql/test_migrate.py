"""The migrations make what the schema declares, from empty, once, whoever starts them."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from reference.tables import declaring_modules
from sqlalchemy import text
from sqlalchemy.util import await_only

import tidegate
from tests.processes import WarmProcess, start_warm
from tests.servers.sql import SERVERS, SqlName, sql_server
from tests.waiting import is_pending
from tidegate.core.errors import ServerRefused
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.migrate import (
    _alone,  # pyright: ignore[reportPrivateUsage]
    _is_current,  # pyright: ignore[reportPrivateUsage]
    migrate,
    pending_migrations,
    require_current,
)
from tidegate.storage.sql.schema import metadata, outbox_events


@pytest.fixture
async def empty(database_url: str) -> AsyncGenerator[Database]:
    async with await Database.open(database_url) as opened:
        yield opened


async def test_an_empty_database_gets_every_migration_once(empty: Database) -> None:
    expected = await pending_migrations(empty)
    assert expected

    assert await migrate(empty) == expected

    assert await migrate(empty) == []
    assert await empty.read(_is_current)
    assert await pending_migrations(empty) == []
    await require_current(empty)


async def test_an_outdated_schema_is_refused_with_the_remedy(empty: Database) -> None:
    with pytest.raises(ServerRefused, match="tidegate migrate"):
        await require_current(empty)


async def test_a_newer_schema_is_refused(database: Database) -> None:
    await database.transaction(_run, "UPDATE schema_version SET version_num = '9999'")
    for attempt in (require_current, migrate):
        with pytest.raises(ServerRefused, match="newer than this program"):
            await attempt(database)


async def test_migrations_and_declared_tables_agree(empty: Database) -> None:
    await migrate(empty)
    source = Path(tidegate.__file__).parents[1]
    for declaring in declaring_modules():
        import_module(".".join(declaring.relative_to(source).with_suffix("").parts))
    assert "documents" in metadata.tables

    def differences(tx: Transaction) -> list[Any]:
        options = {"version_table": "schema_version", "compare_type": True, "compare_server_default": True}
        return compare_metadata(MigrationContext.configure(tx.connection, opts=options), metadata)

    assert await empty.read(differences) == []


async def test_the_latest_file_is_the_latest_migration(tmp_path: Path):
    """So that whether a schema is current can be told without Alembic."""
    async with await Database.open(f"sqlite:///{tmp_path / 'tidegate.db'}") as empty:
        await _assert_that_files_tell_what_is_current(empty)


async def _assert_that_files_tell_what_is_current(empty: Database) -> None:
    assert not await empty.read(_is_current)
    *_, newest = await migrate(empty)
    versions = Path(tidegate.__file__).parent / "storage" / "sql" / "migrations" / "versions"
    assert max(path.name.partition("_")[0] for path in versions.glob("0*.py")) == newest
    assert await empty.read(_is_current)
    await empty.transaction(_run, "UPDATE schema_version SET version_num = '0001'")
    assert not await empty.read(_is_current)


@pytest.mark.race
async def test_of_concurrent_migrations_one_does_the_work(database_url: str) -> None:
    processes = [await _ready_to_migrate(database_url) for _ in range(3)]
    for process in processes:  # all have connected: now they go
        assert process.stdin
        process.stdin.write(b"go\n")
    done = await asyncio.gather(*(_applied(process) for process in processes))
    assert sorted(len(applied) for applied in done)[:-1] == [0, 0]
    async with await Database.open(database_url) as database:
        await require_current(database)


@pytest.mark.full
@pytest.mark.parametrize("server_name", SERVERS)
async def test_a_migration_is_exclusive(server_name: SqlName) -> None:
    """SQLite has one writer in any case; the servers have a lock, which here is held by somebody else."""
    server = sql_server(server_name)
    async with server.database() as name, await Database.open(server.url(name)) as database:
        held, may_end = asyncio.Event(), asyncio.Event()

        def hold(tx: Transaction) -> None:
            with _alone(tx, database.name):
                held.set()
                await_only(may_end.wait())

        holder = asyncio.create_task(database.transaction(hold))
        await held.wait()
        migrating = asyncio.create_task(migrate(database))
        assert await is_pending(migrating)
        may_end.set()
        await holder
        assert await migrating


@pytest.mark.full
async def test_an_interrupted_migration_is_completed(empty: Database) -> None:
    """MySQL and MariaDB commit each change of the schema alone, so half of one may be there already."""
    await empty.transaction(lambda tx: outbox_events.create(tx.connection))
    await empty.transaction(lambda tx: next(iter(outbox_events.indexes)).drop(tx.connection))

    await migrate(empty)

    await require_current(empty)


async def test_ids_that_differ_by_case_are_different(database: Database) -> None:
    def insert_both(tx: Transaction) -> int:
        for event_id in ("a", "A"):
            tx.execute(
                outbox_events.insert().values(
                    event_id=event_id, kind="k", event_key="k", payload=1, state="x", attempts=0, created_at=tx.now
                )
            )
        return len(tx.execute(outbox_events.select().where(outbox_events.c.event_id == "a")).all())

    assert await database.transaction(insert_both) == 1


def _run(tx: Transaction, sql: str) -> None:
    tx.execute(text(sql))


_MIGRATE = """
import asyncio, sys
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import migrate

async def main():
    async with await Database.open(sys.argv[1]) as database:
        print("ready", file=sys.stderr, flush=True)
        sys.stdin.readline()
        print(*await migrate(database), file=sys.stderr)

asyncio.run(main())
"""


async def _ready_to_migrate(url: str) -> WarmProcess:
    pipe = asyncio.subprocess.PIPE
    process = await start_warm(
        sys.executable, "-c", _MIGRATE, url, stdin=pipe, stdout=asyncio.subprocess.DEVNULL, stderr=pipe
    )
    assert process.stderr
    assert await process.stderr.readline() == b"ready\n"
    return process


async def _applied(process: WarmProcess) -> list[str]:
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode().split()
