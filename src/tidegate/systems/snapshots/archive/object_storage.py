"""Files of the archive: their format and their storage. Needs the extra `archive`.

A file is Parquet, one kind and day per file, in key order. Names such as
`kind=character/day=2026-10-01/<digest>.parquet` follow the partition layout that most tools expect, so they can query
the archive directly. Files are stored in a folder or in any S3-compatible service.
"""

import io
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, timedelta
from hashlib import sha256
from io import RawIOBase
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, from_url

from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.telemetry.redaction import redact_text
from tidegate.systems.snapshots.archive.history import HistoryEntry

_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("changed_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("hash", pa.string(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
_GROUP_ROWS = 500
"""Rows per group: what a read of one subject loads, unless its entries span several groups."""
_LONGEST_LABEL = 100


def name_of(kind: str, day: date, entries: Sequence[HistoryEntry]) -> str:
    """Return the file name of these entries: equal entries have equal names, others do not."""
    # Key and version identify an entry, and its body never changes. So the name does not need to cover the bodies.
    digest = sha256(repr([kind, [(each.key, each.version) for each in entries]]).encode()).hexdigest()[:24]
    label = quote(kind, safe="")
    # File systems limit the length of a name, and quoting makes a label longer.
    shown = label if len(label) <= _LONGEST_LABEL else sha256(kind.encode()).hexdigest()[:24]
    return f"kind={shown}/day={day:%Y-%m-%d}/{digest}.parquet"


def encode(entries: Sequence[HistoryEntry]) -> bytes:
    """Return the content of the file, with uncompressed bodies."""
    columns = [[getattr(each, field.name) for each in entries] for field in _SCHEMA]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=_SCHEMA),
        sink,
        row_group_size=_GROUP_ROWS,
        compression="zstd",
        use_dictionary=False,
    )
    return sink.getvalue().to_pybytes()


def read_subject(file: RawIOBase, key: str) -> list[HistoryEntry]:
    """Return the entries of one subject; reads only row groups that may have them."""
    parquet: Any = pq.ParquetFile(pa.PythonFile(file, mode="r"))
    groups = [n for n in range(parquet.metadata.num_row_groups) if _may_hold(parquet.metadata.row_group(n), key)]
    if not groups:
        return []
    rows: list[dict[str, Any]] = parquet.read_row_groups(groups, columns=_SCHEMA.names).to_pylist()
    return [_entry(row) for row in rows if row["key"] == key]


def _entry(row: dict[str, Any]) -> HistoryEntry:
    return HistoryEntry(**row | {"changed_at": row["changed_at"].astimezone(UTC)}, is_archived=True)


def _may_hold(group: Any, key: str) -> bool:
    known = group.column(0).statistics
    # Without statistics the group has to be read.
    return known is None or not known.has_min_max or known.min <= key <= known.max


_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
_REMEDY = "Set credentials with write permission in the environment (AWS_ACCESS_KEY_ID, ...)"


class StorageUnavailable(Unavailable):
    """The object storage failed or did not answer; retry later."""


class FileGone(StorageUnavailable):
    """The file does not exist."""


class FileNeedsRestore(StorageUnavailable):
    """The file is in a cold storage class, and must be restored before it can be read."""


def folder_of(url: str) -> Path:
    """Return the path of a `file:` URL."""
    return Path(unquote(urlsplit(url).path))


class ObjectStorage:
    """Files by name. A file is durable when `put` returns."""

    def __init__(self, url: str, cold: Path | None = None) -> None:
        """`url`: address without credentials, which come from the environment.

        `cold`: folder to which old files are moved, for an archive in a folder.
        """
        self.url, self._cold = url, cold
        self._folder = folder_of(url) if urlsplit(url).scheme == "file" else None
        with self._converted_errors("open it"):
            if self._folder is not None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._store: Any = LocalStore(self._folder)
            else:
                self._store = from_url(url, retry_config=_RETRIES)

    async def put(self, name: str, content: bytes) -> None:
        """Write a file atomically; replaces an existing one."""
        with self._converted_errors(f"write {name}"):
            await obstore.put_async(self._store, name, content)
            if self._folder is not None:
                make_durable(self._folder / name, self._folder)

    async def get(self, name: str) -> bytes:
        """Return the content of a file; raises `FileGone` or `FileNeedsRestore`."""
        with self._converted_errors(f"read {name}"):
            try:
                answer = await obstore.get_async(self._store, name)
            except FileNotFoundError:
                # `FolderLifecycle` copies a file before it removes the original, so it is found here
                # if it was moved meanwhile.
                answer = await obstore.get_async(self._cold_store(), name)
            return bytes(await answer.bytes_async())

    async def names(self) -> list[str]:
        """Return the names of all files."""
        with self._converted_errors("list it"):
            found = [entry["path"] async for some in obstore.list(self._store) for entry in some]
        return sorted(found)

    def open(self, name: str, size: int) -> "RangeFile":
        """Open a file; its parts are read on demand, which blocks and must not run on the event loop."""
        return RangeFile(self, name, size)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return a range of a file; blocks."""
        with self._converted_errors(f"read {name}"):
            try:
                return bytes(obstore.get_range(self._store, name, start=start, length=length))
            except FileNotFoundError:  # moved meanwhile: it is copied to the cold folder before it is removed
                return bytes(obstore.get_range(self._cold_store(), name, start=start, length=length))

    def _cold_store(self) -> Any:
        if self._cold is None or not self._cold.is_dir():
            raise FileNotFoundError("the file does not exist")
        return LocalStore(self._cold)

    @contextmanager
    def _converted_errors(self, what: str) -> Generator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FileGone(f"{self.url}: could not {what}: {_first_line(error)}") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            # S3 reports a file in a cold class as 403, like missing permissions. Only the code in
            # the text tells them apart.
            if "InvalidObjectState" in str(error):
                raise FileNeedsRestore(f"{self.url}: could not {what}: the file is in a cold storage class") from None
            raise ServerRefused(self.url, f"it refused to {what}: {_first_line(error)}", remedy=_REMEDY) from None
        except (BaseError, OSError, ValueError) as error:
            message = f"{self.url}: could not {what}: {_first_line(error)}"
            raise StorageUnavailable(message, server=self.url) from None

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url})"


class RangeFile(io.RawIOBase):
    """A seekable file object for a file in object storage."""

    def __init__(self, storage: ObjectStorage, name: str, size: int) -> None:
        super().__init__()
        self._storage, self._name, self._size, self._at = storage, name, size, 0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; none at the end."""
        left = max(0, self._size - self._at)
        length = left if size < 0 else min(size, left)
        if length == 0:
            return b""
        content = self._storage.read_range(self._name, self._at, length)
        self._at += len(content)
        return content


def make_durable(path: Path, root: Path) -> None:
    """Sync a file and its folders to disk: the original is deleted next, and must survive a power failure."""
    # A new file is durable only if the entries of its folders are, too.
    for place in (path, *(parent for parent in path.parents if parent == root or root in parent.parents)):
        handle = os.open(place, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error; further lines are debug output of the library."""
    return redact_text((str(error).splitlines() or [type(error).__name__])[0][:300])
