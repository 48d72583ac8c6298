"""The table of one kind of document in a destination, and documents as rows of it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import compress
from typing import cast

import msgspec

from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import BODY, Column, Type, Value
from tidegate.storage.documents.sync.reading import ColumnReader

ID, COLLECTED_AT, FINGERPRINT = "id", "_collected_at", "_fingerprint"

KEYS = (
    Column(ID, Type.TEXT),
    Column("owner", Type.TEXT),
    Column("resource", Type.TEXT),
    Column("resource_key", Type.TEXT),
    Column("version", Type.TEXT),
)
"""The first columns of every table. `id` is the primary key."""

RECORD = (
    Column("_source", Type.TEXT),
    Column("_first_collected_at", Type.TIME),
    Column(COLLECTED_AT, Type.TIME),
    Column("_deleted_at", Type.TIME),
    Column(FINGERPRINT, Type.WHOLE),
)
"""The last columns of every table."""

DESCRIPTIONS: Mapping[str, str] = {
    ID: "primary key",
    "owner": "subject for which the document was collected",
    "resource": "list that contains the document, for example `repo:octocat/hello-world`",
    "resource_key": "`resource` after its first colon, for example `octocat/hello-world`",
    "version": "what the upstream orders versions by, for example the time of its last change",
    "_source": "source that collected the document; also the name of the schema",
    "_first_collected_at": "when the document was first stored",
    COLLECTED_AT: "when the stored document last changed, disappeared or came back",
    "_deleted_at": "since when the document is missing upstream; empty while it exists",
    FINGERPRINT: "used by the next sync to find what changed; do not change it",
}
"""What the columns of every table mean."""


class SyncTable(msgspec.Struct, frozen=True):
    """Name and columns of a table."""

    source: str
    kind: str
    columns: Sequence[Column]

    @classmethod
    def of(cls, source: str, kind: str, fields: Sequence[Column]) -> "SyncTable":
        """The table of a kind for which the source declares the columns `fields`.

        A kind without declared columns gets the whole document as JSON, in the column `body`.
        """
        columns = (*KEYS, *(fields or (BODY,)), *RECORD)
        names = [column.name for column in columns]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgument("columns", name, f"{kind} has two columns of this name")
        return cls(source, kind, columns)

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [column.name for column in self.columns]


Record = tuple[str, datetime, int]
"""What the next sync needs to know of a row: its id, `_collected_at` and `_fingerprint`."""


class Rows:
    """Rows of a table on their way to a destination, each id once, column by column."""

    def __init__(self, table: SyncTable) -> None:
        self.table = table
        self.values: list[list[Value]] = [[] for _ in table.columns]
        self.ids = set[str]()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tuples(self) -> list[tuple[Value, ...]]:
        """The rows, value by value."""
        return list(zip(*self.values, strict=True))

    @property
    def records(self) -> list[Record]:
        """What the next sync needs to know of each row."""
        names = self.table.names
        found = (self.values[names.index(name)] for name in (ID, COLLECTED_AT, FINGERPRINT))
        return cast("list[Record]", list(zip(*found, strict=True)))

    def remove(self, ids: set[str]) -> None:
        """Remove the rows with these ids."""
        if ids:
            kept = [id_ not in ids for id_ in self.values[0]]
            self.values = [list(compress(values, kept)) for values in self.values]
            self.ids -= ids


class RowMaker:
    """Makes rows of documents."""

    def __init__(self, table: SyncTable, fields: Sequence[Column]) -> None:
        self.table, self._has_fields = table, bool(fields)
        self.reader = ColumnReader(fields)

    def add(self, rows: Rows, documents: Sequence[StoredDocument]) -> None:
        """Append documents; `rows` has none of their ids."""
        middle = self.reader.read(documents) if self._has_fields else [[each.text for each in documents]]
        found: list[Sequence[Value]] = [
            [each.id for each in documents],
            [each.owner for each in documents],
            [each.resource for each in documents],
            [each.resource.partition(":")[2] or each.resource for each in documents],
            [each.version for each in documents],
            *middle,
            [self.table.source] * len(documents),
            [each.created_at for each in documents],
            [each.changed_at for each in documents],
            [each.gone_at for each in documents],
            [each.fingerprint for each in documents],
        ]
        for values, more in zip(rows.values, found, strict=True):
            values.extend(more)
        rows.ids.update(each.id for each in documents)
