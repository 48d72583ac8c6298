"""Columns of exports: their types, and the extraction of their values from documents.

A source declares the columns of its kinds of documents. A value of another type than its column is left empty and
counted, so that a column has one type. The column `body`, if it is exported, still has the value.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument
from tidegate.storage.documents.document import StoredDocument

Value = str | int | bool | datetime | list[str] | None

_LARGEST = 2**63 - 1
_LONGEST_LINK_NUMBER = 18


class Type(StrEnum):
    """The type of a column's values."""

    TEXT = "text"
    WHOLE = "whole number"
    TRUTH = "true or false"
    TIME = "time"
    TEXTS = "list of texts"
    JSON = "JSON"


class Misfit:
    """Placeholder for a value of the wrong type."""


MISFIT: Final = Misfit()
EACH: Final = "*"
"""Path element that selects all elements of a list."""


class Column(msgspec.Struct, frozen=True):
    """One column. Made by `text`, `whole`, `truth`, `time`, `texts`, `present` and `number_in_link`."""

    name: str
    type: Type
    path: tuple[str, ...] = ()
    read: Callable[[object], Value | Misfit] = msgspec.field(default=lambda _: None)

    def __post_init__(self) -> None:
        require_name("name", self.name)


def text(name: str, *path: str) -> Column:
    """A column of text."""
    return Column(name, Type.TEXT, path or (name,), _as_text)


def whole(name: str, *path: str) -> Column:
    """A column of whole numbers of at most 64 bits."""
    return Column(name, Type.WHOLE, path or (name,), _as_whole)


def truth(name: str, *path: str) -> Column:
    """A column of booleans."""
    return Column(name, Type.TRUTH, path or (name,), _as_truth)


def time(name: str, *path: str) -> Column:
    """A column of times, written as RFC 3339 with time zone."""
    return Column(name, Type.TIME, path or (name,), _as_time)


def texts(name: str, *path: str) -> Column:
    """A column of lists of texts: a list, or with `EACH` in the path a field of each element."""
    return Column(name, Type.TEXTS, path or (name,), _as_texts)


def present(name: str, *path: str) -> Column:
    """A boolean column: whether the field exists and is not null."""
    return Column(name, Type.TRUTH, path or (name,), _is_present)


def number_in_link(name: str, *path: str) -> Column:
    """A column of numbers at the end of links: 42 for `…/issues/42`."""
    return Column(name, Type.WHOLE, path or (name,), _as_number_in_link)


OWN = (
    Column("id", Type.TEXT),
    Column("owner", Type.TEXT),
    Column("resource", Type.TEXT),
    Column("version", Type.TEXT),
    Column("created_at", Type.TIME),
    Column("changed_at", Type.TIME),
    Column("gone_at", Type.TIME),
)
"""The columns of all documents: ids, owner, and the times of creation, last change and disappearance."""
BODY = Column("body", Type.JSON)
"""The whole document as JSON."""


class TableShape:
    """The columns of one kind of document, and its documents as rows of them."""

    def __init__(self, fields: Sequence[Column], *, with_body: bool) -> None:
        self._fields = tuple(fields)
        self._with_body = with_body
        self.columns: Sequence[Column] = (*OWN, *self._fields, *((BODY,) if with_body else ()))
        names = [column.name for column in (*OWN, *self._fields, BODY)]
        for name in {name for name in names if names.count(name) > 1}:
            raise InvalidArgument("columns", name, "there are two of that name; some are every document's own")
        self.misfits: dict[str, int] = {}
        """Number of values per column that were left empty because of a wrong type."""
        self.unreadable = 0
        """Documents with a body that no JSON parser accepts."""

    def row(self, document: StoredDocument) -> list[Value]:
        """A document as a row, with one value per column."""
        row: list[Value] = [
            document.id,
            document.owner,
            document.resource,
            document.version,
            document.created_at,
            document.changed_at,
            document.gone_at,
        ]
        if self._fields:
            row += self.values(document)
        if self._with_body:
            row.append(document.text)
        return row

    def values(self, document: StoredDocument) -> list[Value]:
        """The values of the columns that the source declared."""
        try:
            body: object = msgspec.json.decode(document.text)
        except (ValueError, RecursionError):
            self.unreadable += 1
            return [None] * len(self._fields)
        return [self.value(column, body) for column in self._fields]

    def value(self, column: Column, body: object) -> Value:
        """The value of one column in a decoded body."""
        found = _walk(body, column.path)
        value = found if isinstance(found, Misfit) else column.read(found)
        if isinstance(value, Misfit):
            self.misfits[column.name] = self.misfits.get(column.name, 0) + 1
            return None
        return value


def _walk(value: object, path: Sequence[str]) -> object:
    """The value at `path`; None if an element of the path is missing or null."""
    for index, step in enumerate(path):
        if value is None:
            return None
        if step == EACH:
            if not isinstance(value, list):
                return MISFIT
            return [_walk(each, path[index + 1 :]) for each in cast("list[object]", value)]
        if not isinstance(value, dict):
            return MISFIT
        value = cast("Mapping[str, Any]", value).get(step)
    return value


def _as_text(value: object) -> str | Misfit | None:
    return value if value is None or isinstance(value, str) else MISFIT


def _as_whole(value: object) -> int | Misfit | None:
    if value is None:
        return None
    # In Python, a boolean is an int.
    return value if type(value) is int and -_LARGEST <= value <= _LARGEST else MISFIT


def _as_truth(value: object) -> bool | Misfit | None:
    return value if value is None or isinstance(value, bool) else MISFIT


def _as_time(value: object) -> datetime | Misfit | None:
    if value is None:
        return None
    try:
        moment = msgspec.convert(value, datetime) if isinstance(value, str) else None
        return MISFIT if moment is None or moment.tzinfo is None else moment.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        return MISFIT


def _as_texts(value: object) -> list[str] | Misfit | None:
    if value is None:
        return None
    if not isinstance(value, list):
        return MISFIT
    items = [each for each in cast("list[object]", value) if isinstance(each, str)]
    return items if len(items) == len(cast("list[object]", value)) else MISFIT


def _is_present(value: object) -> bool:
    return value is not None


def _as_number_in_link(value: object) -> int | Misfit | None:
    if value is None:
        return None
    digits = value.rpartition("/")[2] if isinstance(value, str) else ""
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_LINK_NUMBER
    return int(digits) if is_number else MISFIT
