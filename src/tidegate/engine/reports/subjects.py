"""Lists subjects: what was collected or is scheduled, each with its last run and its next due time.

A subject is listed as long as one of its runs is kept or one of its schedules exists. Pages are ordered by the id of
the subject; two sources can have subjects with the same id, which are then on the same page.

A search examines at most `MOST_EXAMINED` subjects for a page, so a page can have fewer subjects than its limit, even
none, and still have a next page.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import CTE, ColumnElement, func, literal, or_, select

from tidegate.core.arguments import require_positive
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.run_search import ESCAPE, MOST_EXAMINED, pattern_of
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


def list_subjects(tx: Transaction, query: SubjectQuery, *, most_examined: int = MOST_EXAMINED) -> FoundSubjects:
    """Return a page of at most `limit` ids. Raises `InvalidArgument` for an invalid text."""
    require_positive("limit", query.limit)
    collected, examined_to = _collected_ids(tx, query, most_examined)
    ids = sorted({*collected, *_scheduled_ids(tx, query)})
    if examined_to is not None:
        ids = [id_ for id_ in ids if id_ <= examined_to]
    page = ids[: query.limit]
    found = _subjects(tx, page, query.source)
    return FoundSubjects(found, page[-1] if len(ids) > query.limit else examined_to)


def _collected_ids(tx: Transaction, query: SubjectQuery, most_examined: int) -> tuple[list[str], str | None]:
    """The ids of the page that have runs, and one more if there are further ones.

    If the page is not full because `most_examined` subjects were examined, the last of them is returned too.
    """
    wanted = query.limit + 1
    steps = _ids_by_steps(query, wanted if query.search is None else most_examined)
    found = select(steps.c.user_id).where(steps.c.user_id.is_not(None)).order_by(steps.c.user_id).limit(wanted)
    if query.search is None:
        return list(tx.execute(found).scalars()), None
    named = select(_run.id).where(_run.user_id == steps.c.user_id, _is_named(_run, query.search))
    ids = list(tx.execute(found.where(named.exists())).scalars())
    if len(ids) == wanted:
        return ids, None
    last = select(steps.c.user_id).where(steps.c.step == most_examined)
    return ids, tx.execute(last).scalar_one_or_none()


def _ids_by_steps(query: SubjectQuery, most: int) -> CTE:
    """The first ids that have runs. The index is searched once for each, however many runs it has."""
    ours = [] if query.source is None else [_run.source == query.source]
    smallest = select(func.min(_run.user_id).label("user_id"), literal(1).label("step"))
    smallest = smallest.where(*ours, *([] if query.after is None else [_run.user_id > query.after]))
    ids = smallest.cte("ids", recursive=True)
    following = select(func.min(_run.user_id)).where(*ours, _run.user_id > ids.c.user_id).scalar_subquery()
    step = select(following, ids.c.step + 1).where(ids.c.user_id.is_not(None), ids.c.step < most)
    return ids.union_all(step)


def _scheduled_ids(tx: Transaction, query: SubjectQuery) -> Sequence[str]:
    """The first ids that have schedules."""
    those = list[ColumnElement[bool]]()
    if query.after is not None:
        those.append(_schedule.user_id > query.after)
    if query.source is not None:
        those.append(_schedule.source == query.source)
    if query.search is not None:
        those.append(_is_named(_schedule, query.search))
    ids = select(_schedule.user_id).where(*those).distinct().order_by(_schedule.user_id).limit(query.limit + 1)
    return tx.execute(ids).scalars().all()


def _is_named(columns: Any, search: str) -> ColumnElement[bool]:
    pattern = func.lower(pattern_of(search))
    return or_(*(func.lower(name).like(pattern, escape=ESCAPE) for name in (columns.login, columns.user_id)))


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
