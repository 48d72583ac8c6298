"""The format of archive files: Parquet, one kind and day per file, in key order. Needs the extra `archive`.

Names such as `kind=character/day=2026-10-01/<digest>.parquet` follow the partition layout that most tools expect, so
they can query the archive directly.
"""

from collections.abc import Sequence
from datetime import UTC, date
from hashlib import sha256
from io import RawIOBase
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

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
