"""Checks of the installation: version, free space, servers, and file permissions."""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

from tidegate import __version__
from tidegate.connections import open_valkey
from tidegate.core.errors import InvalidSettings, TidegateError
from tidegate.core.findings import CheckResult, Finding, ask_about, failure
from tidegate.core.telemetry.disks import free_mb
from tidegate.engine.credentials.opening import key_source
from tidegate.settings import Settings
from tidegate.storage.documents.sql import check_documents
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.migrate import pending_migrations
from tidegate.storage.sql.urls import parse_address
from tidegate.storage.valkey import Valkey

_ERRORS = (TidegateError, OSError)
_TOO_LITTLE_MB, _LITTLE_MB = 100, 1000
_OTHERS = 0o077
_MOST_NAMED = 3
_UNTRIED_AFTER = timedelta(minutes=10)
"""Events younger than this may still be delivered."""


async def valkey(settings: Settings) -> AsyncIterator[Finding]:
    """Check the Valkey or Redis server."""
    name = "valkey (embedded)" if settings.valkey_url is None else "valkey"
    try:
        async with open_valkey(settings) as opened:
            yield Finding(name, CheckResult.OK, _describe(opened))
            for finding in _advice(name, opened):
                yield finding
    except _ERRORS as error:
        yield failure(name, error, ask_about("TIDEGATE_VALKEY_URL", settings.valkey_url))


async def database(settings: Settings) -> AsyncIterator[Finding]:
    """Check the database and its schema."""
    name = "database (embedded)" if settings.database_url is None else "database"
    try:
        async with await Database.open(settings.effective_database_url) as opened:
            server = await opened.describe()
            abilities = ", ".join(sorted(server.capabilities))
            yield Finding(name, CheckResult.OK, f"{server.product} {server.version} at {opened.name}: {abilities}")
            missing = await pending_migrations(opened)
            if not missing:
                yield Finding(f"{name}: schema", CheckResult.OK, "up to date")
                for untried in await opened.read(_untried):
                    yield _not_handled(name, untried)
            elif settings.migrates_at_start:
                yield Finding(
                    f"{name}: schema", CheckResult.OK, f"{len(missing)} migration(s) will run at the next start"
                )
            else:
                remedy = "Run `tidegate migrate`"
                yield Finding(f"{name}: schema", CheckResult.FAILED, f"{len(missing)} migration(s) missing", remedy)
    except _ERRORS as error:
        yield failure(name, error, ask_about("TIDEGATE_DATABASE_URL", settings.database_url))


async def documents(settings: Settings) -> AsyncIterator[Finding]:
    """Check the document store, if it is not the database."""
    if settings.documents.url is None:
        return
    try:
        name = await check_documents(settings.documents)
        yield Finding("documents", CheckResult.OK, f"MongoDB at {name}")
    except _ERRORS as error:
        yield failure("documents", error, ask_about("TIDEGATE_DOCUMENTS__URL", settings.documents.url))


def _untried(tx: Transaction) -> list[outbox.UntriedEvents]:
    return outbox.untried(tx, before=tx.now - _UNTRIED_AFTER)


def _not_handled(name: str, untried: outbox.UntriedEvents) -> Finding:
    """The finding about events that are pending because no running process has a handler for their kind."""
    since = f"{untried.oldest:%Y-%m-%d %H:%M} UTC"
    return Finding(
        f"{name}: events",
        CheckResult.ADVICE,
        f"{untried.events:,} event(s) of kind {untried.kind} pending since {since}: no process handles them",
        "Run a process with the system that handles this kind in the setting `systems`; by default all systems run",
    )


def _describe(opened: Valkey) -> str:
    info = opened.info
    reads = "blocking reads" if info.can_block else "no blocking reads"
    kind = "cluster, " if info.is_cluster else ""
    return f"{info.product} {info.version} at {opened.address}: {kind}{reads}"


def _advice(name: str, opened: Valkey) -> list[Finding]:
    found: list[Finding] = []
    if not opened.info.persists:
        remedy = "Set `appendonly yes`; without it, all state has to be rebuilt from SQL after a restart"
        found.append(Finding(f"{name}: persistence", CheckResult.ADVICE, "no append-only file", remedy))
    if opened.info.evicts:
        remedy = "Set `maxmemory-policy noeviction`: the eviction of single keys makes related keys inconsistent"
        found.append(Finding(f"{name}: memory", CheckResult.ADVICE, "may evict keys", remedy))
    if not opened.info.can_block:
        remedy = "Allow blocking commands: consumers then wait without polling"
        found.append(Finding(f"{name}: blocking", CheckResult.ADVICE, "blocking reads are forbidden", remedy))
    return found


async def installation(settings: Settings) -> AsyncIterator[Finding]:
    """Check the version, the data folder and free space."""
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("tidegate", CheckResult.OK, f"{__version__} on Python {platform.python_version()}, {system}")
    try:
        folder = settings.make_data_dir()
    except InvalidSettings:
        remedy = "Set another folder in TIDEGATE_DATA_DIR"
        yield Finding("data folder", CheckResult.FAILED, f"{settings.data_dir} is not writable", remedy)
        return
    yield Finding("data folder", CheckResult.OK, str(folder))
    file = _database_file(settings)
    for place in dict.fromkeys([folder, folder if file is None else file.parent]):
        if place.is_dir():
            yield _space(place)


async def permissions(settings: Settings) -> AsyncIterator[Finding]:
    """Check that only the owner can access the database, the keys and their folders."""
    open_files = [path for path in _private_files(settings) if _mode(path) & _OTHERS]
    open_folders = [path for path in _private_folders(settings) if _mode(path) & _OTHERS]
    if open_files:
        remedy = f"Run `chmod 600 {' '.join(map(str, open_files))}`"
        yield Finding("files", CheckResult.FAILED, f"other users can read {_listed(open_files)}", remedy)
    if open_folders:
        remedy = f"Run `chmod 700 {' '.join(map(str, open_folders))}`"
        yield Finding("folders", CheckResult.ADVICE, f"other users can enter {_listed(open_folders)}", remedy)
    if not open_files and not open_folders and settings.data_dir.is_dir():
        yield Finding("files", CheckResult.OK, "database and keys are private")
    try:
        keys = key_source(settings).read()
    except InvalidSettings as error:
        if not open_files and settings.data_dir.is_dir():  # otherwise reported already
            yield Finding("keys", CheckResult.FAILED, str(error))
        return
    if keys is not None:
        yield Finding("keys", CheckResult.OK, f"{len(keys)} readable")


def _space(folder: Path) -> Finding:
    free = free_mb(folder)
    found = f"{free:,} MB free in {folder}"
    if free < _TOO_LITTLE_MB:
        return Finding("free space", CheckResult.FAILED, found, "Free disk space; writes fail when the disk is full")
    if free < _LITTLE_MB:
        return Finding("free space", CheckResult.ADVICE, found, "Free disk space before the disk is full")
    return Finding("free space", CheckResult.OK, found)


def _private_files(settings: Settings) -> Iterator[Path]:
    database = _database_file(settings)
    if database is not None:
        # SQLite keeps recent rows in a file beside the database.
        yield from (path for suffix in ("", "-wal", "-shm") if (path := Path(f"{database}{suffix}")).is_file())
    yield from (path for path in sorted(settings.data_dir.glob("credentials.*")) if path.is_file())


def _private_folders(settings: Settings) -> Iterator[Path]:
    yield from (
        path
        for name in ("", "valkey", "archive", "archive-cold")
        if (path := settings.data_dir / name).is_dir() and _is_ours(path)
    )


def _is_ours(path: Path) -> bool:
    return path.stat().st_uid == os.getuid()


def _database_file(settings: Settings) -> Path | None:
    address = parse_address(settings.effective_database_url)
    return Path(address.url.database or "").absolute() if address.dialect == "sqlite" else None


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _listed(paths: list[Path]) -> str:
    named = ", ".join(f"{path} ({_mode(path):o})" for path in paths[:_MOST_NAMED])
    return named if len(paths) <= _MOST_NAMED else f"{named} and {len(paths) - _MOST_NAMED} more"
