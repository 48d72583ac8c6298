"""Rows as Arrow tables, and the Parquet file of a sync folder, compressed with zstd.

Needs pyarrow, which the extras `duckdb` and `parquet` bring.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.storage.documents.export.columns import Type
from tidegate.storage.documents.sync.destination import SyncFailed
from tidegate.storage.documents.sync.folder import RowWriter
from tidegate.storage.documents.sync.table import COLLECTED_AT, FINGERPRINT, ID, Record, Rows, SyncTable


def arrow_schema(table: SyncTable, *, times: Any) -> Any:
    """The Arrow schema of a table, with `times` as the type of times."""
    types: dict[Type, Any] = {
        Type.TEXT: pa.string(),
        Type.WHOLE: pa.int64(),
        Type.TRUTH: pa.bool_(),
        Type.TIME: times,
        Type.TEXTS: pa.list_(pa.string()),
        Type.JSON: pa.string(),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in table.columns])


def arrow_table(rows: Rows, schema: Any) -> Any:
    """The rows as an Arrow table of this schema."""
    arrays = [pa.array(values, field.type) for values, field in zip(rows.values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


_AT_ONCE = 20_000


class ParquetFile:
    """A `RowFile` in the format Parquet."""

    def __init__(self, shown: str, path: Path, table: SyncTable) -> None:
        self._shown, self.path, self._table = shown, path, table
        self.schema = arrow_schema(table, times=pa.timestamp("us", tz="UTC"))

    def is_current(self) -> bool:
        """See `RowFile.is_current`."""
        if not self.path.exists():
            return False
        present = pq.read_schema(self.path)
        for field in self.schema:
            if field.name in present.names and present.field(field.name).type != field.type:
                reason = f"the column {field.name} of {self.path.name} is {present.field(field.name).type}"
                raise SyncFailed(
                    self._shown, f"{reason}, and the source declares {field.type}", "Write it again with --full"
                )
        return set(self.schema.names) <= set(present.names)

    def records(self) -> Iterator[Record]:
        """See `RowFile.records`."""
        for batch in self.batches([ID, COLLECTED_AT, FINGERPRINT]):
            ids, times, fingerprints = (column.to_pylist() for column in batch.columns)
            for id_, at, fingerprint in zip(ids, times, fingerprints, strict=True):
                moment: datetime = at
                yield id_, moment.replace(tzinfo=UTC), fingerprint

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """The rows of the complete file."""
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=_AT_ONCE, columns=columns)

    def create(self, path: Path) -> RowWriter:
        """See `RowFile.create`."""
        return _ParquetWriter(self, path)


class _ParquetWriter:
    def __init__(self, file: ParquetFile, path: Path) -> None:
        self._file = file
        self._writer = pq.ParquetWriter(path, file.schema, compression="zstd")

    def write(self, rows: Rows) -> None:
        """See `RowWriter.write`."""
        self._writer.write_table(arrow_table(rows, self._file.schema))

    def copy(self, without: set[str]) -> None:
        """See `RowWriter.copy`."""
        for batch in self._file.batches(self._file.schema.names):
            kept = pa.array([id_ not in without for id_ in batch.column(ID).to_pylist()], pa.bool_())
            self._writer.write_table(pa.Table.from_batches([batch]).filter(kept).cast(self._file.schema))

    def close(self) -> None:
        """See `RowWriter.close`."""
        self._writer.close()
