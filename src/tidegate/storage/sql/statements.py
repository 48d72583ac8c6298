"""Statements about many rows at once, for the hottest paths: written once, sent as few round trips as can be.

SQLAlchemy is right for everything else. It builds, compiles and converts for each row, which costs more than the row;
and on SQLite each row that is bound or fetched is a moment in which the writer's thread waits for its turn in Python.
Here rows go in as one value and, on SQLite, come out as one.

In a text stand `:name` for a value, `IN :name[]` for a set of whole numbers, and `:name(a number, b text, c moment)`
for rows, as a table with these columns. A `key` is a text of at most 200 characters, by which rows are looked up: MySQL
and MariaDB keep such a table in memory, and one with a `text` in a file.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import CursorResult

from tidegate.core.errors import ContractBroken
from tidegate.storage.sql.transaction import Transaction
from tidegate.storage.sql.urls import Dialect

Rows = Sequence[Sequence[Any]]
Item = TypeVar("Item")

_MOST_ROWS = 1000
_MOST_CHARACTERS = 4 * 1024 * 1024
_TOKEN = re.compile(r"IN :(?P<set>\w+)\[\]|(?<!:):(?P<rows>\w+)\((?P<columns>[^)]*)\)|(?<!:):(?P<value>[a-z]\w*)")
_TYPES: Mapping[Dialect, Mapping[str, str]] = {
    "sqlite": {},
    "postgresql": {"number": "bigint", "text": "text", "key": "text", "moment": "timestamptz"},
    "mysql": {
        "number": "BIGINT",
        "text": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "key": "VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "moment": "DATETIME(6)",
    },
}


class _Rendered(NamedTuple):
    text: str
    binders: list[Callable[[Mapping[str, Any]], list[Any]]]
    """Each makes the parameters of one place in the text, in their order."""


class Statement:
    """One statement, or the same one in the words of each server. `returns` names the columns of a SELECT."""

    def __init__(self, text: str | Mapping[Dialect, str], *, returns: Sequence[str] = ()) -> None:
        self._text, self._returns = text, returns
        self._rendered: dict[Dialect, _Rendered] = {}

    def run(self, tx: Transaction, **values: Any) -> CursorResult[*tuple[Any, ...]]:
        """Run it; the result tells how many rows it changed."""
        rendered = self._rendered.get(tx.dialect) or self._render(tx.dialect)
        return tx.execute_sql(rendered.text, tuple(value for bind in rendered.binders for value in bind(values)))

    def rows(self, tx: Transaction, **values: Any) -> Rows:
        """Run it, and return what it found: numbers and texts, in the order of `returns`."""
        found = self.run(tx, **values)
        if tx.dialect == "sqlite":
            return msgspec.json.decode(found.scalar_one())
        return found.all()

    def _render(self, dialect: Dialect) -> _Rendered:
        text = self._text if isinstance(self._text, str) else self._text[dialect]
        if self._returns and dialect == "sqlite":
            # One row with one text: each row that is fetched would release and take the interpreter lock.
            text = f"SELECT json_group_array(json_array({', '.join(self._returns)})) FROM ({text})"  # noqa: S608
        rendering = _Rendering(dialect)
        rendered = _Rendered(_TOKEN.sub(rendering.place, text), rendering.binders)
        self._rendered[dialect] = rendered
        return rendered


class _Rendering:
    """Puts a server's own placeholders into a text, from left to right."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect: Dialect = dialect
        self._placed = 0
        self.binders: list[Callable[[Mapping[str, Any]], list[Any]]] = []

    def place(self, token: re.Match[str]) -> str:
        """What stands in the text instead of `token`."""
        if token["set"]:
            return self._set(token["set"])
        if token["rows"]:
            return self._table(token["rows"], [tuple(column.split()) for column in token["columns"].split(",")])
        name, dialect = token["value"], self._dialect
        self.binders.append(lambda values: [_as_value(dialect, values[name])])
        return self._placeholder()

    def _placeholder(self) -> str:
        self._placed += 1
        match self._dialect:
            case "sqlite":
                return "?"
            case "postgresql":
                return f"${self._placed}"
            case "mysql":
                return "%s"

    def _set(self, name: str) -> str:
        match self._dialect:
            case "sqlite":
                self.binders.append(lambda values: [_encode(list(values[name]))])
                return f"IN (SELECT value FROM json_each({self._placeholder()}))"  # noqa: S608
            case "postgresql":  # as a text: its driver examines each element of an array, at length
                self.binders.append(lambda values: [f"{{{','.join(map(str, values[name]))}}}"])
                return f"= ANY({self._placeholder()}::text::bigint[])"
            case "mysql":
                self.binders.append(lambda values: [_not_empty(name, values[name])])
                return f"IN {self._placeholder()}"

    def _table(self, name: str, columns: Sequence[tuple[str, ...]]) -> str:
        dialect, moments = self._dialect, [n for n, (_, kind) in enumerate(columns) if kind == "moment"]
        self.binders.append(lambda values: [_encode(_with_texts(dialect, values[name], moments))])
        types, given = _TYPES[dialect], self._placeholder()
        match dialect:
            case "sqlite":
                # No types are needed: `json_extract` returns numbers as numbers and texts as texts.
                taken = ", ".join(f"json_extract(value, '$[{n}]') AS {column}" for n, (column, _) in enumerate(columns))
                return f"(SELECT {taken} FROM json_each({given})) AS {name}"  # noqa: S608
            case "postgresql":
                taken = ", ".join(f"(value ->> {n})::{types[kind]} AS {col}" for n, (col, kind) in enumerate(columns))
                elements = f"jsonb_array_elements({given}::text::jsonb) AS elements(value)"
                return f"(SELECT {taken} FROM {elements}) AS {name}"  # noqa: S608
            case "mysql":
                taken = ", ".join(f"{column} {types[kind]} PATH '$[{n}]'" for n, (column, kind) in enumerate(columns))
                return f"JSON_TABLE({given}, '$[*]' COLUMNS ({taken})) AS {name}"


def parts(items: Sequence[Item], size: Callable[[Item], int]) -> Iterator[Sequence[Item]]:
    """As many at once as a server takes in one statement; `size` is in characters."""
    start = characters = 0
    for index, item in enumerate(items):
        length = size(item)
        # A single item is passed on even if it is larger than the limit.
        if index > start and (index - start == _MOST_ROWS or characters + length > _MOST_CHARACTERS):
            yield items[start:index]
            start, characters = index, 0
        characters += length
    if start < len(items):
        yield items[start:]


def _as_value(dialect: Dialect, value: Any) -> Any:
    """As `UtcDateTime` writes it where the server knows no zones."""
    if not isinstance(value, datetime) or dialect == "postgresql":
        return value
    return _as_text(value) if dialect == "sqlite" else value.astimezone(UTC).replace(tzinfo=None)


def _with_texts(dialect: Dialect, rows: Rows, moments: Sequence[int]) -> Rows:
    """Moments as texts: with their zone, or as the servers without zones write them."""
    if not moments:
        return rows
    write = datetime.isoformat if dialect == "postgresql" else _as_text
    return [
        [write(value) if n in moments and value is not None else value for n, value in enumerate(row)] for row in rows
    ]


def _as_text(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _not_empty(name: str, numbers: Sequence[int]) -> tuple[int, ...]:
    """MySQL has no words for an empty set."""
    if not numbers:
        raise ContractBroken(f"{name} is empty: there is nothing to ask for")
    return tuple(numbers)
