"""Rows as Arrow tables. Needs pyarrow, which the extras `duckdb` and `parquet` bring."""

from typing import Any

import pyarrow as pa

from tidegate.storage.documents.export.columns import Type
from tidegate.storage.documents.sync.table import Rows, SyncTable


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
