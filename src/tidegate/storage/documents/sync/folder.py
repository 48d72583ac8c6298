"""A folder with one file for each kind, as Parquet or JSON Lines: `FOLDER/SOURCE/KIND.parquet`.

A file in which something changed is written again as a whole, from the new rows and the rows of the old file, and then
renamed: a reader sees the old or the new file. What the next sync needs to know is in the file itself, so there is
nothing that a crash could separate from it. Files are private; a file that exists keeps its permissions.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from tidegate.storage.documents.store import ChangeDigest
from tidegate.storage.documents.sync.destination import (
    DestinationAddress,
    DestinationKind,
    SyncFailed,
    create_private_file,
    create_private_folder,
)
from tidegate.storage.documents.sync.table import COLLECTED_AT, FINGERPRINT, Record, Rows, SyncTable

_PARTIAL = ".tidegate-partial"
_REMEDIES = {
    errno.EACCES: "Name a folder that this user may write with --to",
    errno.EPERM: "Name a folder that this user may write with --to",
    errno.EROFS: "Name a folder that this user may write with --to",
    errno.ENOTDIR: "Name a folder with --to",
    errno.EEXIST: "Name a folder with --to",
    errno.EFBIG: "Allow larger files (ulimit -f) and repeat the sync: it continues where it stopped",
    errno.ENOSPC: "Make room on the disk and repeat the sync: it continues where it stopped",
    errno.EDQUOT: "Make room on the disk and repeat the sync: it continues where it stopped",
}


class RowWriter(Protocol):
    """A file that is being written."""

    def write(self, rows: Rows) -> None:
        """Append rows to the file."""
        ...

    def copy(self, without: set[str]) -> None:
        """Append the rows of the complete file except those with certain ids."""
        ...

    def close(self) -> None:
        """Write buffered rows, and close the file."""
        ...


class RowFile(Protocol):
    """A complete file, and how such a file is written."""

    def is_current(self) -> bool:
        """Whether the file exists and has all columns. Raises `SyncFailed` where one has another type."""
        ...

    def records(self) -> Iterator[Record]:
        """Return what the next sync needs to know about each row."""
        ...

    def create(self, path: Path) -> RowWriter:
        """Begin a file of the same format at `path`."""
        ...


class SyncFolder:
    """A `Destination` in the folder of a source."""

    def __init__(self, address: DestinationAddress, folder: Path, lock: int | None) -> None:
        self._address, self._folder, self._lock = address, folder, lock
        self._tables: list[FolderTable] = []

    @classmethod
    def open(cls, address: DestinationAddress, source: str, *, read_only: bool) -> "SyncFolder":
        """Lock the folder of the source; it is created where it does not exist."""
        folder = address.path / source
        if read_only:
            return cls(address, folder, None)
        with _errors(address.shown):
            create_private_folder(folder)
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                reason = f"another sync of {source} is writing to it"
                raise SyncFailed(address.shown, reason, "Repeat the sync when it ended") from None
            # Left by a sync that was killed. The lock is held, so no other sync is writing them.
            for entry in folder.iterdir():
                if entry.name.startswith(".") and entry.name.endswith(_PARTIAL):
                    entry.unlink(missing_ok=True)
        return cls(address, folder, lock)

    async def open_table(self, table: SyncTable, *, full: bool) -> "FolderTable":
        """See `Destination.open_table`."""
        opened = FolderTable(self._address.shown, self._file(table), self._path(table), self._lock, table)
        self._tables.append(opened)
        if not full:
            await opened.load()
        return opened

    async def peek(self, table: SyncTable) -> "FolderTable | None":
        """See `Destination.peek`."""
        opened = FolderTable(self._address.shown, self._file(table), self._path(table), None, table)
        await opened.load()
        return opened if self._path(table).exists() else None

    async def close(self) -> None:
        """See `Destination.close`."""
        for table in self._tables:
            table.abandon()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _path(self, table: SyncTable) -> Path:
        return self._folder / f"{table.kind}.{self._address.kind}"

    def _file(self, table: SyncTable) -> RowFile:
        if self._address.kind is DestinationKind.PARQUET:
            from tidegate.storage.documents.sync.arrow import ParquetFile

            return ParquetFile(self._address.shown, self._path(table), table)

        return JsonlFile(self._path(table), table)


class FolderTable:
    """A `Table`. Rows are collected in a new file, which takes the place of the old one at the end."""

    def __init__(self, shown: str, file: RowFile, path: Path, folder: int | None, table: SyncTable) -> None:
        self._shown, self._file, self._path, self._folder, self._table = shown, file, path, folder, table
        self._partial = path.with_name(f".{path.name}{_PARTIAL}")
        self._moments: dict[datetime, ChangeDigest] = {}
        self._keeps_old = False
        self._writer: RowWriter | None = None
        self._is_published = False
        self._ids = set[str]()
        """The rows that were written to the new file."""

    async def load(self) -> None:
        """Read what the file has."""
        await asyncio.to_thread(self._load)

    def _load(self) -> None:
        with _errors(self._shown):
            self._keeps_old = self._file.is_current()
            sums = dict[datetime, list[int]]()
            for _, at, fingerprint in self._file.records() if self._keeps_old else ():
                total = sums.setdefault(at, [0, 0])
                total[0] += 1
                total[1] += fingerprint
        self._moments = {at: ChangeDigest(at, *total) for at, total in sums.items()}

    async def moments(self, after: datetime | None, until: datetime) -> Mapping[datetime, ChangeDigest]:
        """See `Table.moments`."""
        if self._writer is not None:  # the second pass of a sync
            await asyncio.to_thread(self._publish_and_load)
        return {at: each for at, each in self._moments.items() if (after is None or at > after) and at <= until}

    async def write(self, rows: Rows) -> int:
        """See `Table.write`."""
        return await asyncio.to_thread(self._write, rows)

    def _write(self, rows: Rows) -> int:
        with _errors(self._shown):
            if not self._ids.isdisjoint(rows.ids):  # a document changed between two reads of this sync
                self._publish_and_load()
            rows.remove(self._unchanged(rows))
            if not rows and self._path.exists():
                return 0
            if self._writer is None:
                create_private_file(self._partial, like=self._path)
                self._writer = self._file.create(self._partial)
            self._writer.write(rows)
            self._ids |= rows.ids
        return len(rows)

    def _unchanged(self, rows: Rows) -> set[str]:
        """Return the ids of rows that the file contains unchanged."""
        given = {each for each in rows.records if each[1] in self._moments}
        return {each[0] for each in self._file.records() if each in given} if given else set()

    async def finish(self, *, full: bool) -> int:
        """See `Table.finish`."""
        if self._writer is None and not self._is_published and (full or not self._path.exists()):
            await self.write(Rows(self._table))  # a file without rows
        await asyncio.to_thread(self._publish)
        return 0

    def abandon(self) -> None:
        """Remove a file that is not complete."""
        if self._writer is not None:
            with suppress(Exception):  # it may hold what the disk has no room for
                self._writer.close()
            self._writer = None
        with suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def _publish_and_load(self) -> None:
        self._publish()
        self._load()

    def _publish(self) -> None:
        """Add the remaining rows of the old file to the new one, and replace the old file."""
        if self._writer is None:
            return
        with _errors(self._shown):
            if self._keeps_old:
                self._writer.copy(self._ids)
            self._writer.close()
            self._writer = None
            with self._partial.open("rb") as file:
                os.fsync(file.fileno())
            # Only when the content is on the disk: a crash leaves the former file or the complete new one.
            self._partial.replace(self._path)
            self._is_published = True
            if self._folder is not None:
                os.fsync(self._folder)  # the name itself
        self._ids = set()


@contextmanager
def _errors(shown: str) -> Generator[None]:
    try:
        yield
    except ValueError as error:  # of pyarrow or msgspec
        text = str(error).partition("\n")[0]
        raise SyncFailed(shown, f"a file cannot be read: {text}", "Write it again with --full") from None
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "Repeat the sync when it is repaired")
        raise SyncFailed(shown, error.strerror or str(error), remedy) from None


_encoder = msgspec.json.Encoder()


class _Line(msgspec.Struct, frozen=True, rename={"at": COLLECTED_AT, "fingerprint": FINGERPRINT}):
    id: str
    at: datetime
    fingerprint: int


_decode = msgspec.json.Decoder(_Line).decode


class JsonlFile:
    """A `RowFile` of JSON Lines."""

    def __init__(self, path: Path, table: SyncTable) -> None:
        self.path, self.table = path, table

    def is_current(self) -> bool:
        """See `RowFile.is_current`. JSON has no types of columns that could differ."""
        if not self.path.exists():
            return False
        first = next(self.lines(), None)
        return first is None or set(self.table.names) <= set(msgspec.json.decode(first, type=dict[str, msgspec.Raw]))

    def records(self) -> Iterator[Record]:
        """See `RowFile.records`."""
        for line in map(_decode, self.lines()):
            yield line.id, line.at, line.fingerprint

    def lines(self) -> Iterator[bytes]:
        """The lines of the complete file."""
        with self.path.open("rb") as file:
            yield from file

    def create(self, path: Path) -> RowWriter:
        """See `RowFile.create`."""
        return _JsonLinesWriter(self, path)


class _JsonLinesWriter:
    def __init__(self, file: JsonlFile, path: Path) -> None:
        self._file, self._output = file, path.open("wb")

    def write(self, rows: Rows) -> None:
        """See `RowWriter.write`."""
        names = self._file.table.names
        self._output.write(_encoder.encode_lines(dict(zip(names, row, strict=True)) for row in rows.tuples))

    def copy(self, without: set[str]) -> None:
        """See `RowWriter.copy`."""
        self._output.writelines(line for line in self._file.lines() if _decode(line).id not in without)

    def close(self) -> None:
        """See `RowWriter.close`."""
        self._output.close()
