"""A file of JSON Lines of a sync folder: one row on each line, with the same columns as in the other destinations."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from tidegate.storage.documents.sync.folder import RowWriter
from tidegate.storage.documents.sync.table import COLLECTED_AT, FINGERPRINT, Record, Rows, SyncTable

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
