"""The page of the warehouse: the tables that `tidegate sync` makes of GitHub's documents."""

from collections.abc import Iterator, Sequence

from reference.markdown import MADE, anchor, code, page, table
from tidegate.storage.documents.export.columns import Column, Type
from tidegate.storage.documents.sync.table import DESCRIPTIONS, KEYS, RECORD
from tidegate.systems.github.kinds import COLUMNS
from tidegate.systems.github.relations import relations

_HEAD = f"""# Warehouse

{MADE}

[`tidegate sync`](../guides/sync.md) makes one table for each kind of document, in a schema that has the name of the
source: `github.issue`. In a folder, each table is a file: `github/issue.parquet`. A source of your own gets tables from
the columns that it declares.

The schema is a star around `repository` and `user`: each other table has one row per event or item, and refers to them.
`user` has only accounts that were collected, so join it with LEFT JOIN; the columns that end in `_login` name every
account. The prefix `github_` distinguishes fields from columns that every table has. Foreign keys are not enforced.

Rows are never deleted by an ordinary sync. To see what exists upstream, add `WHERE _deleted_at IS NULL`.
"""
_TYPES = {
    Type.TEXT: ("VARCHAR", "text"),
    Type.WHOLE: ("BIGINT", "bigint"),
    Type.TRUTH: ("BOOLEAN", "boolean"),
    Type.TIME: ("TIMESTAMP, in UTC", "timestamp, in UTC"),
    Type.TEXTS: ("VARCHAR[]", "text[]"),
    Type.JSON: ("VARCHAR", "text"),
}


def describe_warehouse() -> str:
    """The page, as Markdown."""
    lines = [_HEAD, "## Types", ""]
    lines += table(["type", "DuckDB", "PostgreSQL"], ([each.value, *_TYPES[each]] for each in Type))
    lines += [
        "Parquet has the types of DuckDB with times in UTC; JSON Lines has times as text and lists as arrays.",
        "",
    ]
    lines += ["## Columns of every table", ""]
    lines += table(
        ["column", "type", "meaning"],
        ([code(each.name), each.type.value, DESCRIPTIONS[each.name]] for each in (*KEYS, *RECORD)),
    )
    for document, columns in COLUMNS.items():
        lines += [f"## {document}", "", *_described(document, columns)]
    return page(lines)


def _described(document: str, columns: Sequence[Column]) -> Iterator[str]:
    yield from table(
        ["column", "type", "in GitHub's document"],
        ([code(each.name), each.type.value, _path(each)] for each in columns),
    )
    references = [
        f"- {_names(each.columns)} → {_names(each.keys)} of [{each.table}](#{anchor(each.table)})"
        for each in relations(document)
    ]
    if references:
        yield from ("Foreign keys:", "", *references, "")


def _path(column: Column) -> str:
    return code(".".join(column.path).replace(".*", "[]"))


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(code, names))
