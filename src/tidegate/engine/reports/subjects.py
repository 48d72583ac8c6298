"""Lists subjects: what was collected or is scheduled, each with its last run and its next due time.

A subject is listed as long as one of its runs is kept or one of its schedules exists. Pages are ordered by the id of
the subject; two sources can have subjects with the same id, which are then on the same page.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, func, or_, select, union

from tidegate.core.arguments import require_positive
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.run_search import ESCAPE, pattern_of
from tidegate.engine.schedules.firings import collection_schedules
from tidegate.engine.tables import collection_runs
from tidegate.storage.sql import Transaction

_run, _schedule = collection_runs.c, collection_schedules.c


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run of a subject."""

    id: int
    status: RunState
    created_at: datetime
    completed_at: datetime | None
    failed_jobs: int


class CollectedSubject(msgspec.Struct, frozen=True, kw_only=True):
    """A subject with its runs and schedules."""

    source: str
    id: str
    """Its id within the source."""
    login: str
    """Its display name."""
    runs: int
    """How many of its runs are kept."""
    documents: int
    """New and changed documents that these runs stored."""
    last_run: LastRun | None
    """None before the first run of a schedule."""
    last_completed_at: datetime | None
    """When the newest of its completed runs ended."""
    schedules: int
    next_at: datetime | None
    """The next due time of its schedules; None if it has none, or if they are paused."""


class SubjectQuery(NamedTuple):
    """The subjects to list."""

    source: str | None = None
    search: str | None = None
    """A part of the name or of the id, regardless of case."""
    after: str | None = None
    """Only subjects with ids after this one."""
    limit: int = 50


class FoundSubjects(NamedTuple):
    """A page of subjects, ordered by id."""

    subjects: list[CollectedSubject]
    next_after: str | None
    """Value of `after` for the next page; None on the last page."""


def list_subjects(tx: Transaction, query: SubjectQuery) -> FoundSubjects:
    """Return a page of at most `limit` ids. Raises `InvalidArgument` for an invalid text."""
    require_positive("limit", query.limit)
    ids = _ids(tx, query)
    page = ids[: query.limit]
    found = _subjects(tx, page, query.source)
    return FoundSubjects(found, page[-1] if len(ids) > query.limit else None)


def _ids(tx: Transaction, query: SubjectQuery) -> list[str]:
    """The ids of the page, and one more if there are further ones."""
    parts = [
        select(columns.user_id)
        .where(*_wanted(columns, query))
        .distinct()
        .order_by(columns.user_id)
        .limit(query.limit + 1)
        .subquery()
        for columns in (_run, _schedule)
    ]
    merged = union(*(select(part.c.user_id) for part in parts)).subquery()
    return list(tx.execute(select(merged.c.user_id).order_by(merged.c.user_id).limit(query.limit + 1)).scalars())


def _wanted(columns: Any, query: SubjectQuery) -> list[ColumnElement[bool]]:
    those = list[ColumnElement[bool]]()
    if query.after is not None:
        those.append(columns.user_id > query.after)
    if query.source is not None:
        # `coalesce` keeps the server from using the index on the source, which has no order by subject.
        those.append(func.coalesce(columns.source, "") == query.source)
    if query.search is not None:
        pattern = func.lower(pattern_of(query.search))
        names = (columns.login, columns.user_id)
        those.append(or_(*(func.lower(name).like(pattern, escape=ESCAPE) for name in names)))
    return those


def _subjects(tx: Transaction, ids: Sequence[str], source: str | None) -> list[CollectedSubject]:
    """The subjects with these ids; of one source, or of all."""
    runs = select(
        _run.user_id, _run.source, func.count().label("runs"), func.max(_run.id).label("last_id"),
        func.sum(_run.documents).label("documents"),
    )  # fmt: skip
    runs = runs.where(_run.user_id.in_(ids)).group_by(_run.user_id, _run.source)
    found = {(row.user_id, row.source): row for row in tx.execute(runs)}
    newest = select(collection_runs).where(_run.id.in_([row.last_id for row in found.values()]))
    last = {(row.user_id, row.source): row for row in tx.execute(newest)}
    completed = select(_run.user_id, _run.source, func.max(_run.completed_at).label("at"))
    completed = completed.where(_run.user_id.in_(ids), _run.status == RunState.COMPLETED)
    ended = {(row.user_id, row.source): row.at for row in tx.execute(completed.group_by(_run.user_id, _run.source))}
    planned = select(
        _schedule.user_id, _schedule.source, func.max(_schedule.login).label("login"), func.count().label("schedules"),
        func.min(_schedule.next_at).label("next_at"),
    )  # fmt: skip
    planned = planned.where(_schedule.user_id.in_(ids)).group_by(_schedule.user_id, _schedule.source)
    due = {(row.user_id, row.source): row for row in tx.execute(planned)}
    order = {id_: place for place, id_ in enumerate(ids)}
    keys = sorted(found.keys() | due.keys(), key=lambda key: (order[key[0]], key[1]))
    return [
        _subject(key, found.get(key), last.get(key), ended.get(key), due.get(key))
        for key in keys
        if source is None or key[1] == source
    ]


def _subject(key: tuple[str, str], runs: Any, last: Any, ended: datetime | None, due: Any) -> CollectedSubject:
    last_run = None
    if last is not None:
        last_run = LastRun(
            id=last.id,
            status=RunState(last.status),
            created_at=last.created_at,
            completed_at=last.completed_at,
            failed_jobs=last.failed_jobs,
        )
    return CollectedSubject(
        source=key[1],
        id=key[0],
        login=due.login if last is None else last.login,
        runs=0 if runs is None else runs.runs,
        documents=0 if runs is None else int(runs.documents),
        last_run=last_run,
        last_completed_at=ended,
        schedules=0 if due is None else due.schedules,
        next_at=None if due is None else due.next_at,
    )
