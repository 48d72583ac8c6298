"""Parquet, compressed with zstd. Needs the extra `parquet`."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import BODY, TableShape, Type, Value

_MOST_ROWS = 20_000
_MOST_CHARACTERS = 8 * 1024 * 1024
"""Size of a row group, which writers and readers keep in memory."""

_TYPES: dict[Type, Any] = {
    Type.TEXT: pa.string(),
    Type.WHOLE: pa.int64(),
    Type.TRUTH: pa.bool_(),
    Type.TIME: pa.timestamp("us", tz="UTC"),
    Type.TEXTS: pa.list_(pa.string()),
    Type.JSON: pa.string(),
}


class ParquetWriter:
    """Writes documents as Parquet; see `FileWriter`."""

    def __init__(self, file: BinaryIO, shape: TableShape) -> None:
        self._shape = shape
        self._schema = pa.schema([pa.field(column.name, _TYPES[column.type]) for column in shape.columns])
        self._writer: Any = pq.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=_repeating(shape),  # pyright: ignore[reportArgumentType] - its annotation forgets lists
        )
        self._rows: list[list[Value]] = []
        self._characters = 0

    def write(self, documents: Sequence[StoredDocument]) -> None:
        """See `FileWriter.write`."""
        for document in documents:
            self._rows.append(self._shape.row(document))
            self._characters += len(document.text)
            if len(self._rows) >= _MOST_ROWS or self._characters >= _MOST_CHARACTERS:
                self._write_group()

    def finish(self) -> None:
        """See `FileWriter.finish`."""
        if self._rows:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """See `FileWriter.abandon`."""
        self._rows.clear()
        with suppress(OSError, ValueError):  # writing the buffered data may fail too
            self._writer.close()

    def _write_group(self) -> None:
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows, self._characters = [], 0


def _repeating(shape: TableShape) -> list[str]:
    """Columns with repeated values. Ids and bodies are distinct, so a dictionary would save nothing."""
    return [column.name for column in shape.columns if column.name not in ("id", BODY.name)]
