"""Where the next run of a user goes on; written by the transaction that ends a listing."""

from collections.abc import Iterable

from tidegate.collect.source import Cursor, JobSpec
from tidegate.database import Transaction
from tidegate.database.statements import Statement, parts

_LONGEST_ETAG = 200


def move_cursors(tx: Transaction, moved: Iterable[tuple[str, int, JobSpec, Cursor]]) -> None:
    """Write cursors, each with its user, its run and its job; of several for a resource the last counts."""
    rows = {
        (user_id, spec.kind, spec.resource): (cursor.cursor, cursor.timestamp, _kept(cursor), cursor.credential, run_id)
        for user_id, run_id, spec, cursor in moved
    }
    # Sorted: two writers meet in one order.
    for part in parts([(*key, *rows[key]) for key in sorted(rows)], lambda row: len(row[3] or "")):
        _MOVE.run(tx, moved=part, now=tx.now)


def _kept(cursor: Cursor) -> str | None:
    """An ETag only saves a call. One that does not fit is better forgotten than in the way."""
    return cursor.etag if cursor.etag is not None and len(cursor.etag) <= _LONGEST_ETAG else None


_KEY = ("user_id", "resource_type", "resource_key")
_VALUES = ("last_cursor", "last_timestamp", "last_etag", "last_credential", "last_run_id")
_INSERT = f"INSERT INTO collection_cursors ({', '.join((*_KEY, *_VALUES, 'updated_at'))})"
_GIVEN = ", ".join((*(f"{name} text" for name in (*_KEY, *_VALUES[:-1])), "last_run_id number"))
_TAKEN = ", ".join(f"moved.{name}" for name in (*_KEY, *_VALUES))
_REPLACE = ", ".join(f"{name} = excluded.{name}" for name in (*_VALUES, "updated_at"))
_ON_CONFLICT = f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {_REPLACE}"
_ON_DUPLICATE = ", ".join(f"{name} = VALUES({name})" for name in (*_VALUES, "updated_at"))
_MOVE = Statement(
    {
        # Without a WHERE, SQLite would take ON for the beginning of a join's condition.
        "sqlite": f"{_INSERT} SELECT {_TAKEN}, :now FROM :moved({_GIVEN}) WHERE true {_ON_CONFLICT}",  # noqa: S608
        "postgresql": f"{_INSERT} SELECT {_TAKEN}, :now::timestamptz FROM :moved({_GIVEN}) {_ON_CONFLICT}",  # noqa: S608
        "mysql": f"{_INSERT} SELECT {_TAKEN}, :now FROM :moved({_GIVEN}) ON DUPLICATE KEY UPDATE {_ON_DUPLICATE}",  # noqa: S608
    }
)
