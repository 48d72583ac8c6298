"""Cursors: where the next run of a user continues a resource. Written by the transaction that ends a listing.

If items of a list could not be read in two attempts, the list keeps its former cursor once: the next run reads the same
pages again and finds the items if the fault was transient. If it finds gaps again, the cursor moves, so an item that is
never readable causes this once only. After a run without gaps, the list can keep its cursor once again.
"""

from collections.abc import Iterable

import msgspec
from sqlalchemy import and_, insert, select, update

from tidegate.engine.source import Cursor, JobSpec
from tidegate.engine.tables import collection_cursors
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement, parts

_LONGEST_ETAG = 200
_c = collection_cursors.c


class CursorChange(msgspec.Struct, frozen=True, gc=False):
    """The end of a listing."""

    source: str
    user_id: str
    run_id: int
    spec: JobSpec
    cursor: Cursor
    has_gaps: bool = False
    """Whether some of its items could not be read."""


def move_cursors(tx: Transaction, moves: Iterable[CursorChange]) -> None:
    """Write cursors. Of several cursors for a resource, the last one is written."""
    last = {(move.source, move.user_id, move.spec.kind, move.spec.resource): move for move in moves}
    # Sorted: all writers lock in the same order.
    rows = [_row(last[key]) for key in sorted(last) if not last[key].has_gaps or not _is_held(tx, last[key])]
    for part in parts(rows, lambda row: len(str(row[4] or ""))):
        _MOVE.run(tx, moved=part, now=tx.now)


def _is_held(tx: Transaction, move: CursorChange) -> bool:
    """Keep the former cursor of a list with gaps, unless the run before left gaps too.

    A list without a cursor gets an empty one, which only notes the gaps.
    """
    key = dict(zip(_KEY, _key(move), strict=True))
    same = and_(*(_c[name] == value for name, value in key.items()))
    had_gaps = tx.execute(select(_c.has_gaps).where(same)).scalar_one_or_none()
    if had_gaps:
        return False
    noted = {"has_gaps": 1, "updated_at": tx.now}
    if had_gaps is None:
        tx.execute(insert(collection_cursors).values(**key, **noted, last_run_id=move.run_id))
    else:
        tx.execute(update(collection_cursors).where(same).values(noted))
    return True


def _key(move: CursorChange) -> tuple[str, str, str, str]:
    return move.source, move.user_id, move.spec.kind, move.spec.resource


def _row(move: CursorChange) -> tuple[str | int | None, ...]:
    cursor = move.cursor
    values = (cursor.cursor, cursor.timestamp, _kept(cursor), cursor.credential)
    return (*_key(move), *values, move.run_id, int(move.has_gaps))


def _kept(cursor: Cursor) -> str | None:
    """The ETag, unless it is too long to be stored. It only saves calls, so it can be dropped."""
    return cursor.etag if cursor.etag is not None and len(cursor.etag) <= _LONGEST_ETAG else None


_KEY = ("source", "user_id", "resource_type", "resource_key")
_TEXTS = ("last_cursor", "last_timestamp", "last_etag", "last_credential")
_NUMBERS = ("last_run_id", "has_gaps")
_VALUES = (*_TEXTS, *_NUMBERS)
_INSERT = f"INSERT INTO collection_cursors ({', '.join((*_KEY, *_VALUES, 'updated_at'))})"
_GIVEN = ", ".join((*(f"{name} text" for name in (*_KEY, *_TEXTS)), *(f"{name} number" for name in _NUMBERS)))
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
