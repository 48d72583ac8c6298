"""Databases with all tables and nothing in them: copies of one that was migrated once in this test process.

Migrations have tests of their own, and take longer than most tests that only need what they leave behind.
"""

import secrets
import sqlite3
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.servers.emptied import Emptier, emptier_of
from tests.servers.registry import record_used
from tests.servers.sql import SqlName, SqlServer, sql_server
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import migrate

on_sqlite = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
"""For a test whose rule has nothing to do with the kind of server, among others whose rules have."""


@asynccontextmanager
async def migrated_database(name: SqlName, folder: Path) -> AsyncGenerator[str]:
    """The URL of a new database with all tables; `folder` is for the one that is a file."""
    if name == "sqlite":
        yield await migrated_file(folder / "tidegate.db")
        return
    server = sql_server(name)
    free, emptier = _free.setdefault(server, []), await _emptier(server)
    database = free.pop() if free else await _copy(server)
    yield server.url(database)
    if await emptier.empty(database):
        free.append(database)
    else:
        await server.drop(database)


@asynccontextmanager
async def migrated_on(name: SqlName) -> AsyncGenerator[tuple[SqlServer, str]]:
    """A server, and the name of a new database on it with all tables."""
    server = sql_server(name)
    async with server.database(like=await _template(server)) as database:
        yield server, database


async def migrated_for_good(name: SqlName) -> str:
    """The URL of a new database with all tables that stays until its server ends."""
    server = sql_server(name)
    return server.url(await _copy(server))


async def migrated_file(file: Path) -> str:
    """Make a new SQLite file with all tables; returns its URL."""
    record_used("SQLite", sqlite3.sqlite_version)
    image = await _sqlite_image()
    with file.open("xb") as new:
        new.write(image)
    return f"sqlite:///{file}"


async def migrated_folder(folder: Path) -> Path:
    """Make sure that a data folder has a SQLite file with all tables; returns the folder."""
    file = folder / "tidegate.db"
    if not file.exists():
        await migrated_file(file)
    return folder


_templates: dict[SqlServer, str] = {}
_emptiers: dict[SqlServer, Emptier] = {}
_free: dict[SqlServer, list[str]] = {}
"""Those that served a test, and are as new."""
_images: list[bytes] = []


async def _template(server: SqlServer) -> str:
    if server not in _templates:
        name = f"t{secrets.token_hex(6)}"
        await server.admin(f"CREATE DATABASE {name}")
        await _migrate(server.url(name))
        _templates[server] = name
    return _templates[server]


async def _copy(server: SqlServer) -> str:
    name = f"t{secrets.token_hex(6)}"
    await server.copy(await _template(server), name)
    return name


async def _emptier(server: SqlServer) -> Emptier:
    if server not in _emptiers:
        _emptiers[server] = await emptier_of(server, await _template(server))
    return _emptiers[server]


async def _sqlite_image() -> bytes:
    if not _images:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "tidegate.db"
            await _migrate(f"sqlite:///{file}")
            _images.append(file.read_bytes())
    return _images[0]


async def _migrate(url: str) -> None:
    async with await Database.open(url) as database:
        await migrate(database)
