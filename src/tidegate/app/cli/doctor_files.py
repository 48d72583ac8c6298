"""Checks of the local machine: the installation, free space and file permissions."""

import os
import platform
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tidegate import __version__
from tidegate.app.cli.findings import CheckResult, Finding
from tidegate.core.errors import InvalidSettings
from tidegate.core.telemetry.disks import free_mb
from tidegate.engine.credentials.opening import key_source
from tidegate.settings import Settings
from tidegate.storage.sql.urls import parse_address

_TOO_LITTLE_MB, _LITTLE_MB = 100, 1000
_OTHERS = 0o077
_MOST_NAMED = 3


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
