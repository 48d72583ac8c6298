"""The interface of a destination of `tidegate sync`, the functions that open one, and what several destinations share.

A destination is a DuckDB file, a PostgreSQL database, or a folder with Parquet or JSON Lines files. It has one table
per kind of document. Its files and folders are created for their user alone, whatever the umask of the process is.
"""

import os
import stat
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import msgspec

from tidegate.core.errors import InvalidArgument, InvalidSettings, TidegateError
from tidegate.storage.documents.export.columns import Column, Type
from tidegate.storage.documents.store import ChangeDigest
from tidegate.storage.documents.sync.table import Rows, SyncTable
from tidegate.storage.sql.urls import parse_address

EXAMPLES = "duckdb:FILE, postgresql://USER@HOST/DATABASE, parquet:DIR or jsonl:DIR"


class SyncFailed(TidegateError):
    """The destination could not be written. Rows written so far stay; a repeated sync continues."""

    def __init__(self, destination: str, reason: str, remedy: str = "Repeat the sync when it is repaired") -> None:
        super().__init__(f"{destination}: {reason}. {remedy}")
        self.destination, self.reason = destination, reason


class DestinationKind(StrEnum):
    """The kinds of destinations."""

    DUCKDB = "duckdb"
    POSTGRESQL = "postgresql"
    PARQUET = "parquet"
    JSONL = "jsonl"


class DestinationAddress(msgspec.Struct, frozen=True):
    """Kind and place of a destination."""

    kind: DestinationKind
    shown: str
    """As it may be printed: without a password."""
    place: str = msgspec.field(default="")
    """The path of a file or folder, or the address of a server."""

    def __repr__(self) -> str:
        return f"Address({self.shown})"

    @property
    def path(self) -> Path:
        """The place as a path."""
        return Path(self.place).expanduser()


class Table(Protocol):
    """One table of an open destination, created or extended where necessary."""

    async def moments(self, after: datetime | None, until: datetime) -> Mapping[datetime, ChangeDigest]:
        """The moments of its rows after `after` and up to `until`."""
        ...

    async def write(self, rows: Rows) -> int:
        """Insert or replace rows by their ids; returns how many are new or different.

        A destination that is a database commits them.
        """
        ...

    async def finish(self, *, full: bool) -> int:
        """Publish the written rows; `full` removes rows that were not written since `renew`. Returns their number."""
        ...


class Destination(Protocol):
    """An open destination. No other sync writes the same source to it at the same time."""

    async def open_table(self, table: SyncTable, *, full: bool) -> Table:
        """A table, created or extended by missing columns.

        With `full`, or with a new column, every row counts as different, so that it is written again. Raises
        `SyncFailed` where a column has another type, unless `full` is set.
        """
        ...

    async def peek(self, table: SyncTable) -> Table | None:
        """Return the existing table for a comparison, without changing it; None if it does not exist."""
        ...

    async def close(self) -> None:
        """Discard unpublished rows, and close the connection."""
        ...


def parse_destination(text: str) -> DestinationAddress:
    """Parse the address of a destination, as given to `tidegate sync`.

    Raises `InvalidArgument` if it is invalid, and `InvalidSettings` if a library that it needs is not installed.
    """
    scheme, separator, rest = text.partition(":")
    if scheme in ("postgresql", "postgres"):
        address = parse_address(text)
        return DestinationAddress(DestinationKind.POSTGRESQL, address.shown, "postgresql:" + rest)
    if not separator or scheme not in (DestinationKind.DUCKDB, DestinationKind.PARQUET, DestinationKind.JSONL):
        shown = f"{scheme}:…" if separator else text
        raise InvalidArgument("to", shown, f"must be {EXAMPLES}")
    path = rest.removeprefix("//")
    if not path:
        raise InvalidArgument("to", text, f"must name a path after {scheme}:")
    kind = DestinationKind(scheme)
    _require_libraries(kind)
    return DestinationAddress(kind, f"{kind}:{path}", path)


async def open_destination(address: DestinationAddress, source: str, *, read_only: bool = False) -> Destination:
    """Open the destination for the tables of one source; close it in the end.

    Raises `SyncFailed` where it cannot be used or another sync is writing to it.
    """
    match address.kind:
        case DestinationKind.DUCKDB:
            from tidegate.storage.documents.sync.duckdb_file import DuckdbFile

            return await DuckdbFile.open(address, read_only=read_only)
        case DestinationKind.POSTGRESQL:
            from tidegate.storage.documents.sync.postgresql_database import PostgresqlDatabase

            return await PostgresqlDatabase.open(address, source)
        case DestinationKind.PARQUET | DestinationKind.JSONL:
            from tidegate.storage.documents.sync.folder import SyncFolder

            return SyncFolder.open(address, source, read_only=read_only)


def _require_libraries(kind: DestinationKind) -> None:
    needed = {
        DestinationKind.DUCKDB: ("duckdb", "pyarrow"),
        DestinationKind.PARQUET: ("pyarrow",),
        DestinationKind.JSONL: (),
    }[kind]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise InvalidSettings(f'{kind}: needs the library {" and ".join(missing)}: pip install "tidegate[{kind}]"')


_umask = threading.Lock()
_FILE, _FOLDER = 0o600, 0o700


def create_private_folder(folder: Path) -> None:
    """Create a folder and those above it; folders that exist keep their permissions."""
    if not folder.parent.exists():
        create_private_folder(folder.parent)
    if not folder.is_dir():
        folder.mkdir(_FOLDER, exist_ok=True)
        folder.chmod(_FOLDER)  # a umask may have taken more away


def create_private_file(path: Path, *, like: Path | None = None) -> None:
    """Create an empty file, or empty it. One that replaces `like` has the permissions of that file, if it exists."""
    mode = _FILE if like is None or not like.exists() else stat.S_IMODE(like.stat().st_mode)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


@contextmanager
def private_umask() -> Generator[None]:
    """Make files private that a library creates meanwhile. The umask belongs to the process: one thread at a time."""
    with _umask:
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)


Declared = Mapping[Type, str]
"""The type of a column in a destination, as its catalogue writes it."""


def quoted(name: str) -> str:
    """`name` as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def added_columns(
    shown: str, table: SyncTable, present: Mapping[str, str], types: Declared, *, full: bool
) -> Sequence[Column] | None:
    """The columns that a table lacks; None where it has to be created again because a column has another type.

    Columns that the source does not declare any more stay, and are empty in new rows. Raises `SyncFailed` where a
    column has another type, unless `full` is set.
    """
    for column in table.columns:
        found = present.get(column.name)
        if found is not None and found.lower() != types[column.type].lower():
            if full:
                return None
            raise SyncFailed(
                shown,
                f"the column {column.name} of {table.source}.{table.kind} is {found}, and the source declares "
                f"{types[column.type]}",
                "Create the table again with --full",
            )
    return [column for column in table.columns if column.name not in present]
