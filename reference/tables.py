"""The page of tables: every column, type and index, with what the code says of them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Table, UniqueConstraint

import tidegate
from reference.markdown import MADE, anchor, code, page, prose, table
from tidegate.storage.sql.schema import metadata

_SOURCE = Path(tidegate.__file__).parents[1]
_HEAD = f"""# Tables

{MADE}

SQL is the truth: what is on the Valkey server can be made again from here. `tidegate migrate` makes the tables and
changes them; read them as you like, and leave the writing to Tidegate. The types mean the same on every server:
`text(n)` is compared exactly, `time` is a moment in UTC to the microsecond (on MySQL and SQLite without a zone),
`JSON` is text that holds JSON.
"""
_TYPES = {
    "BigInteger": "64-bit number",
    "Blob": "bytes",
    "Boolean": "true or false",
    "Date": "day",
    "Double": "number",
    "Float": "number",
    "Integer": "number",
    "Json": "JSON",
    "LargeBinary": "bytes",
    "SmallInteger": "number",
    "Text": "text",
    "UtcDateTime": "time",
}


@dataclass
class Told:
    """What the code says of a table."""

    meaning: str
    columns: dict[str, str] = field(default_factory=dict[str, str])


def describe_tables() -> str:
    """The page, as Markdown."""
    lines = [_HEAD]
    for folder, modules in groupby(_modules(), key=lambda module: module.parent):
        lines += ["", f"## Tables of {folder.relative_to(_SOURCE / 'tidegate')}", ""]
        for module in modules:
            lines += [prose(_docstring(module)), ""]
            for name, told in _told_in(module).items():
                lines += [f"### {name}", "", *_described(metadata.tables[name], told)]
    return page(lines)


def declaring_modules() -> list[Path]:
    """The modules of the product that declare tables."""
    return sorted(
        each for each in _SOURCE.rglob("*.py") if re.search(r"^\w+ = Table\($", each.read_text(), re.MULTILINE)
    )


def _modules() -> Iterator[Path]:
    """Those that declare tables, imported."""
    for module in declaring_modules():
        import_module(".".join(module.relative_to(_SOURCE).with_suffix("").parts))
        if _told_in(module):
            yield module


def _docstring(module: Path) -> str:
    return (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n\n")[0]


def _described(of: Table, told: Told) -> Iterator[str]:
    yield from (prose(told.meaning), "")
    yield from table(
        ["column", "type", "meaning"], ([code(each.name), _type(each), _meaning(each, told)] for each in of.columns)
    )
    yield from (f"Key: {', '.join(code(each.name) for each in of.primary_key.columns)}.", "")
    indexes = sorted(_indexes(of))
    yield from (f"Indexes: {'; '.join(indexes)}.", "") if indexes else ()


def _type(column: Column[Any]) -> str:
    name = type(column.type).__name__
    length = getattr(column.type, "length", None)
    words = f"text({length})" if name == "String" else _TYPES.get(name, name)
    return f"{words} or NULL" if column.nullable else words


def _meaning(column: Column[Any], told: Told) -> str:
    refers = [f"A row of [{key.column.table.name}](#{anchor(key.column.table.name)})." for key in column.foreign_keys]
    return " ".join([*refers, prose(told.columns.get(column.name, ""))]).strip()


def _indexes(of: Table) -> Iterator[str]:
    for index in of.indexes:
        unique = "unique " if index.unique else ""
        yield unique + ", ".join(code(getattr(each, "name", each)) for each in index.expressions)
    for constraint in of.constraints:
        if isinstance(constraint, UniqueConstraint):
            yield "unique " + ", ".join(code(each.name) for each in constraint.columns)


def _told_in(module: Path) -> dict[str, Told]:
    """Of every table of a module: the text that stands below it, and the comments above its columns."""
    text = module.read_text()
    body = ast.parse(text).body
    found: dict[str, Told] = {}
    for node, below in zip(body, [*body[1:], None], strict=True):
        call = getattr(node, "value", None)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Table":
            name = str(ast.literal_eval(call.args[0]))
            found[name] = Told(_text_of(below), dict(_comments(call, text.splitlines())))
    return found


def _text_of(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _comments(call: ast.Call, lines: list[str]) -> Iterator[tuple[str, str]]:
    for argument in call.args:
        if isinstance(argument, ast.Call) and getattr(argument.func, "id", "") == "Column":
            above = takewhile(lambda line: line.strip().startswith("#"), reversed(lines[: argument.lineno - 1]))
            words = [re.sub(r"^\s*# ?", "", line) for line in above]
            yield str(ast.literal_eval(argument.args[0])), " ".join(reversed(words))
