"""New jobs, of many runs at once. A run has each (kind, resource, page) once, whoever finds it and how often."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tidegate.engine.job_store import StoredJob
from tidegate.engine.lifecycle import JobState
from tidegate.engine.source import FIRST_PAGE, JobSpec
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Rows, Statement, parts

Key = tuple[int, str, str, str]
"""Run, kind, resource and page."""


def key_of(run_id: int, spec: JobSpec) -> Key:
    """What no two jobs have in common."""
    return run_id, spec.kind, spec.resource, spec.page


def add_jobs(tx: Transaction, wanted: Iterable[tuple[int, JobSpec]], *, max_attempts: int) -> list[StoredJob]:
    """Add those that their runs do not have yet; return them, in order. The runs must be locked, or new.

    Each is tried `max_attempts` times before it fails.
    """
    specs = {key_of(run_id, spec): spec for run_id, spec in wanted}
    given = [(*key, msgspec.json.encode(spec).decode(), spec.owner or None) for key, spec in specs.items()]
    added = [row for part in parts(given, lambda row: len(row[-2])) for row in _add(tx, part, max_attempts)]
    return [
        StoredJob(job_id, run_id, pool, specs[run_id, kind, resource, page], None, holder)
        for job_id, run_id, kind, resource, page, pool, holder in added
    ]


def _add(tx: Transaction, given: Sequence[tuple[Any, ...]], tries: int) -> Rows:
    match tx.dialect:
        case "sqlite":  # there is one writer, and numbers only grow
            (before,) = _LAST.run(tx).one()
            _INSERT.run(tx, given=given, now=tx.now, tries=tries)
            return _ADDED.rows(tx, first=(before or 0) + 1, run_ids=[])
        case "postgresql":
            return _INSERTED.rows(tx, given=given, now=tx.now, tries=tries)
        case "mysql":  # the runs are locked: what they have from our first number on is ours
            inserted = _INSERT.run(tx, given=given, now=tx.now, tries=tries)
            runs = sorted({row[0] for row in given})
            return _ADDED.rows(tx, first=inserted.lastrowid, run_ids=runs) if inserted.rowcount else []


_COLUMNS = (
    "run_id, job_type, resource_key, page_key, spec, owner, status, fence, attempt_count, max_attempts, created_at"
)
_GIVEN = ":given(run_id number, job_type text, resource_key text, page_key text, spec text, owner text)"
_NEW = f"given.run_id, job_type, resource_key, page_key, spec, owner, '{JobState.ENQUEUED}', 0, 0"
_HOLDER = f"""
JOIN collection_runs r ON r.id = j.run_id
LEFT JOIN collection_cursors c
  ON j.page_key = '{FIRST_PAGE}' AND c.last_etag IS NOT NULL
 AND c.source = r.source AND c.user_id = coalesce(j.owner, r.user_id)
 AND c.resource_type = j.job_type AND c.resource_key = j.resource_key"""
_ROW = "j.id, j.run_id, j.job_type, j.resource_key, j.page_key, r.pool, c.last_credential"
_ROW_NAMES = ("id", "run_id", "job_type", "resource_key", "page_key", "pool", "last_credential")
_LAST = Statement("SELECT max(id) FROM page_jobs")
_INSERT = Statement(
    {
        # Without a WHERE, SQLite would take ON for the beginning of a join's condition.
        "sqlite": f"""
INSERT INTO page_jobs ({_COLUMNS}) SELECT {_NEW}, :tries, :now FROM {_GIVEN} WHERE true ON CONFLICT DO NOTHING""",  # noqa: S608
        "mysql": f"INSERT IGNORE INTO page_jobs ({_COLUMNS}) SELECT {_NEW}, :tries, :now FROM {_GIVEN}",  # noqa: S608
    }
)
_ADDED = Statement(
    {
        "sqlite": f"SELECT {_ROW} FROM page_jobs j {_HOLDER} WHERE j.id >= :first ORDER BY j.id",  # noqa: S608
        "mysql": f"""
SELECT {_ROW} FROM page_jobs j {_HOLDER} WHERE j.id >= :first AND j.run_id IN :run_ids[] ORDER BY j.id""",  # noqa: S608
    },
    returns=_ROW_NAMES,
)
_INSERTED = Statement(
    {
        "postgresql": f"""
WITH j AS (
  INSERT INTO page_jobs ({_COLUMNS}) SELECT {_NEW}, :tries::integer, :now::timestamptz FROM {_GIVEN}
  ON CONFLICT DO NOTHING RETURNING id, run_id, job_type, resource_key, page_key, owner
)
SELECT {_ROW} FROM j {_HOLDER} ORDER BY j.id""",  # noqa: S608
    },
    returns=_ROW_NAMES,
)
