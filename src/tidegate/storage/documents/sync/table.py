"""The table of one kind of document in a destination, and documents as rows of it.

Declared columns are read from many documents at once, as lists of values, one for each column. A struct type is made of
the paths of the columns, so that the JSON decoder checks the types and skips what no column needs. A document that does
not fit it is read by `TableShape`, which leaves single values empty and counts them. Both ways give the same values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import compress
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta
from msgspec.structs import astuple

from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import (
    BODY,
    EACH,
    Column,
    TableShape,
    Type,
    Value,
    text,
    texts,
    time,
    truth,
    whole,
)

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
    """Rows to be written to a destination, column by column, with unique ids."""

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
        """Return what the next sync needs to know about each row."""
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


_LARGEST = 2**63 - 1
_Values = list[Value]
_PLAIN_TYPES: Mapping[object, Any] = {
    text("any").read: str,
    whole("any").read: Annotated[int, Meta(ge=-_LARGEST, le=_LARGEST)],
    truth("any").read: bool,
    time("any").read: Annotated[datetime, Meta(tz=True)],
    texts("any").read: list[str],
}
"""By the function that reads a column: the type of its values in JSON."""


class ColumnReader:
    """Reads the columns `fields` of documents of one kind."""

    def __init__(self, fields: Sequence[Column]) -> None:
        self._fields = tuple(fields)
        self._shape = TableShape(self._fields, with_body=False)
        self._root = _Node(self._shape, [(index, column, column.path) for index, column in enumerate(self._fields)])
        self._decode = msgspec.json.Decoder(self._root.type).decode

    @property
    def misfits(self) -> Mapping[str, int]:
        """Number of values of a column that are empty because they have another type."""
        return self._shape.misfits

    @property
    def unreadable(self) -> int:
        """Number of documents with a body that is not JSON."""
        return self._shape.unreadable

    def read(self, documents: Sequence[StoredDocument]) -> list[_Values]:
        """The values of each column, in the order of `documents`."""
        found = [list[Value]()] * len(self._fields)
        if not self._fields:
            return found
        bodies, others = list[Any](), list[int]()
        for index, document in enumerate(documents):
            try:
                bodies.append(self._decode(document.text))
            except (ValueError, RecursionError):  # includes msgspec's errors
                bodies.append(None)
                others.append(index)
        for column, values in self._root.values(bodies):
            found[column] = values
        for index in others:
            for column, value in enumerate(self._shape.values(documents[index])):
                found[column][index] = value
        return found


_Place = tuple[int, Column, Sequence[str]]
"""A column, its index, and the rest of its path below a node."""


class _Node:
    """A JSON object with the columns that are found in it."""

    def __init__(self, shape: TableShape, places: Sequence[_Place]) -> None:
        below = dict[str, list[_Place]]()
        for index, column, path in places:
            below.setdefault(path[0], []).append((index, column, path[1:]))
        self._members = [_member(shape, step, group) for step, group in below.items()]
        names = {f"f{number}": step for number, step in enumerate(below)}
        fields = [(name, member.type | None, None) for name, member in zip(names, self._members, strict=True)]
        self.type: Any = msgspec.defstruct("Body", fields, rename=names, frozen=True, gc=False)

    def values(self, objects: Iterable[Any]) -> Iterable[tuple[int, _Values]]:
        """The values of each column below this node, with its index."""
        nothing = (None,) * len(self._members)
        rows = [nothing if each is None else astuple(each) for each in objects]
        for member, values in zip(self._members, zip(*rows, strict=True), strict=bool(rows)):
            yield from member.values(values)


class _Leaf:
    """One column; at most one function converts its value to the type of the column."""

    def __init__(self, shape: TableShape, index: int, column: Column, type_: Any) -> None:
        self.type, self._index = type_, index
        self._convert: Callable[[Any], Value] | None = _utc if column.type is Type.TIME else None
        if type_ is object:
            last = msgspec.structs.replace(column, path=())
            self._convert = lambda value: shape.value(last, value)

    def values(self, found: Sequence[Any]) -> Iterable[tuple[int, _Values]]:
        """The values of the column, with its index."""
        yield self._index, list(found) if self._convert is None else list(map(self._convert, found))


class _Names:
    """A column of one field of each element of a list."""

    def __init__(self, index: int, field: str) -> None:
        self._index = index
        element = msgspec.defstruct("Element", [("name", str)], rename={"name": field}, frozen=True, gc=False)
        self.type: Any = list[element]

    def values(self, found: Sequence[Any]) -> Iterable[tuple[int, _Values]]:
        """The values of the column, with its index."""
        yield self._index, [None if each is None else [element.name for element in each] for each in found]


class _Anything:
    """Columns with overlapping paths: each is looked up in the decoded value."""

    type: Any = object

    def __init__(self, shape: TableShape, group: Sequence[_Place]) -> None:
        self._shape = shape
        self._columns = [(index, msgspec.structs.replace(column, path=tuple(rest))) for index, column, rest in group]

    def values(self, found: Sequence[Any]) -> Iterable[tuple[int, _Values]]:
        """The values of each column, with its index."""
        for index, column in self._columns:
            yield index, [self._shape.value(column, each) for each in found]


def _member(shape: TableShape, step: str, group: Sequence[_Place]) -> "_Node | _Leaf | _Names | _Anything":
    index, column, rest = group[0]
    if step != EACH and not any(EACH in rest for _, _, rest in group) and all(rest for _, _, rest in group):
        return _Node(shape, group)
    if len(group) > 1 or step == EACH:
        return _Anything(shape, group)
    if not rest:
        return _Leaf(shape, index, column, _PLAIN_TYPES.get(column.read, object))
    if len(rest) == 2 and rest[0] == EACH and rest[1] != EACH and column.read is texts("any").read:
        return _Names(index, rest[1])
    return _Anything(shape, group)


def _utc(moment: Any) -> Value:
    """In UTC; None where that is before the year 1 or after the year 9999."""
    if moment is None or moment.tzinfo is UTC:
        return moment
    try:
        return cast("datetime", moment).astimezone(UTC)
    except OverflowError:
        return None
