"""Schema migrations, applied by one process at a time."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from weakref import WeakKeyDictionary

from sqlalchemy import MetaData, column, inspect, select, table, text

from tidegate.core.errors import DatabaseUnavailable, ServerRefused
from tidegate.core.telemetry import get_logger
from tidegate.storage.sql.engine import Database
from tidegate.storage.sql.migrations import VERSION_TABLE
from tidegate.storage.sql.transaction import Transaction

_VERSIONS = Path(__file__).parent / "migrations" / "versions"
_PATIENCE = timedelta(minutes=15)
"""A migration may rewrite large tables, and others wait for it."""
_POSTGRES_LOCK = 0x7164_6761_7465

log = get_logger(__name__)
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def migrate(database: Database) -> list[str]:
    """Apply missing migrations and return them. Any number of processes may call it at once; one works, others wait.

    If the process dies in the middle, SQLite and PostgreSQL roll back; on MySQL and MariaDB, running it again completes
    the rest.
    """
    # Alembic keeps the migration that runs in a global variable.
    async with _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        applied = await database.transaction(_upgrade, database.name, timeout=_PATIENCE)
    if applied:
        log.info("database.migrated", database=database.name, revisions=applied)
    return applied


async def pending_migrations(database: Database) -> list[str]:
    """Return the migrations that `migrate` would apply, in order."""
    return await database.read(_missing, database.name)


async def require_current(database: Database) -> None:
    """Raise `ServerRefused` unless the schema is current."""
    if missing := await pending_migrations(database):
        raise ServerRefused(
            database.name,
            f"its schema lacks {len(missing)} migration(s), the first is {missing[0]}",
            remedy="Run `tidegate migrate`",
        )


async def create_tables(database: Database, metadata: MetaData) -> list[str]:
    """Create the tables that are missing, and return their names. Existing tables are neither altered nor dropped.

    Any number of processes may call this at once.
    """
    # Most starts find all tables, and need no lock.
    if not await missing_tables(database, metadata):
        return []
    created = await database.transaction(_create, database.name, metadata, timeout=_PATIENCE)
    if created:
        log.info("database.migrated", database=database.name, revisions=created)
    return created


async def missing_tables(database: Database, metadata: MetaData) -> list[str]:
    """Names of the tables that `create_tables` would create."""
    return await database.read(_missing_tables, metadata)


def _create(tx: Transaction, name: str, metadata: MetaData) -> list[str]:
    with _alone(tx, name):
        # Read again under the lock: another process may have created them.
        missing = _missing_tables(tx, metadata)
        metadata.create_all(tx.connection, tables=[metadata.tables[each] for each in missing])
        return missing


def _missing_tables(tx: Transaction, metadata: MetaData) -> list[str]:
    present = set(inspect(tx.connection).get_table_names())
    return [each.name for each in metadata.sorted_tables if each.name not in present]


def _upgrade(tx: Transaction, name: str) -> list[str]:
    with _alone(tx, name):
        # Read under the lock: another process may have applied them.
        missing = _missing(tx, name)
        if missing:
            from tidegate.storage.sql.migrations import scripts

            scripts.upgrade(tx.connection)
        return missing


def _missing(tx: Transaction, name: str) -> list[str]:
    if _is_current(tx):
        return []
    # Alembic takes longer to import than most commands take to run, and is needed only now.
    from tidegate.storage.sql.migrations import scripts

    return scripts.missing(tx.connection, name)


def _is_current(tx: Transaction) -> bool:
    """Return whether the newest migration was applied. Their files are named by their numbers, which only ever grow."""
    newest = max(path.name.partition("_")[0] for path in _VERSIONS.glob("[0-9]*.py"))
    if not inspect(tx.connection).has_table(VERSION_TABLE):
        return False
    return tx.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalars().all() == [newest]


@contextmanager
def _alone(tx: Transaction, name: str) -> Generator[None]:
    """Exclude other processes that migrate this database."""
    match tx.dialect:
        case "sqlite":
            yield  # a transaction that writes is alone already
        case "postgresql":
            tx.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _POSTGRES_LOCK})
            yield
        case "mysql":
            with _named_lock(tx, name):
                yield


@contextmanager
def _named_lock(tx: Transaction, name: str) -> Generator[None]:
    # Named locks of MySQL belong to the whole server, so the name contains the database.
    lock = "CONCAT('tidegate:', MD5(DATABASE()))"
    # Ends before the timeout of the transaction, which would be reported as a broken connection.
    seconds = int(_PATIENCE.total_seconds()) - 1
    if tx.execute(text(f"SELECT GET_LOCK({lock}, {seconds})")).scalar_one() != 1:
        raise DatabaseUnavailable(f"{name}: another process has been migrating it for too long")
    # What is read before the lock is granted may be older than what its last holder wrote.
    tx.execute(text("COMMIT"))
    yield
    # The next holder must see our version row, so the commit comes before the release. An error, or a process that
    # dies, releases by closing the connection.
    tx.execute(text("COMMIT"))
    tx.execute(text(f"DO RELEASE_LOCK({lock})"))
