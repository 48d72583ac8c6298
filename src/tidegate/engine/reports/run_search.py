"""Finds runs by a part of the name of their subject, and by the time at which they were created.

No index finds a text inside another one, so a search reads runs one after the other. It reads them in the order of the
index on their creation time and examines at most `MOST_EXAMINED` of them in one transaction. The result says where the
search ended: a page can have fewer runs than its limit, even none, and still have a next page.

A page begins behind the run `before`. That run need not exist any more: its place is then that of the newest older run.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select

from tidegate.core.arguments import require_positive
from tidegate.core.errors import InvalidArgument
from tidegate.engine import runs
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.progress import list_runs
from tidegate.engine.runs import Run
from tidegate.engine.tables import collection_runs
from tidegate.storage.sql import Transaction

MOST_EXAMINED = 20_000
"""Runs that one page examines."""
LONGEST_SEARCH = 200
SEARCHED_TEXT = (
    "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\u0000-\\u0020\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$"
)
"""A text without control characters that does not consist of spaces."""
ESCAPE = "/"
"""Escapes the wildcards in `pattern_of`."""


class RunQuery(NamedTuple):
    """The runs to find. Without `search`, `since` and `until` the indexes find them; see `list_runs`."""

    search: str | None = None
    """A part of the name or of the id of the subject, regardless of case: of ASCII letters, and of others where the
    server compares them so."""
    since: datetime | None = None
    until: datetime | None = None
    """Runs that were created from `since` until before `until`."""
    login: str | None = None
    """The whole name of the subject."""
    source: str | None = None
    states: Sequence[RunState] = ()
    before: int | None = None
    limit: int = 50

    @property
    def is_search(self) -> bool:
        """Whether runs have to be examined one after the other."""
        return self.search is not None or self.since is not None or self.until is not None


class FoundRuns(NamedTuple):
    """A page of runs, the newest first."""

    runs: list[Run]
    next_before: int | None
    """Value of `before` for the next page; None if there are no older runs in the range."""


def find_runs(tx: Transaction, query: RunQuery, *, most_examined: int = MOST_EXAMINED) -> FoundRuns:
    """Return a page of runs. Raises `InvalidArgument` for an invalid text or range."""
    require_positive("limit", query.limit)
    _require_range(query.since, query.until)
    if query.is_search:
        return _search(tx, query, most_examined)
    limit = query.limit
    found = list_runs(
        tx, login=query.login, source=query.source, states=query.states, before=query.before, limit=limit + 1
    )
    return FoundRuns(found[:limit], found[limit - 1].id if len(found) > limit else None)


def _search(tx: Transaction, query: RunQuery, most_examined: int) -> FoundRuns:
    """Search the runs that the indexed filters select, at most `most_examined`, newest first."""
    run, limit = collection_runs.c, query.limit
    those, created_at = list[ColumnElement[bool]](), run.created_at
    if query.login is not None:
        those.append(run.login == query.login)
        # A subject has few runs: coalesce keeps the server from reading those of all others by their creation time.
        created_at = func.coalesce(run.created_at, run.started_at)
    those += [] if query.since is None else [created_at >= query.since]
    those += [] if query.until is None else [created_at < query.until]
    if query.before is not None:
        place = _place_of(tx, query.before)
        if place is None:
            return FoundRuns([], None)
        those.append(_is_behind(created_at, *place))
    newest = (created_at.desc(), run.id.desc())
    examined = select(run.id).where(*those).order_by(*newest)
    bounded = examined.limit(most_examined).subquery()
    matching = select(collection_runs).join(bounded, bounded.c.id == run.id)
    matching = matching.where(*_matches(query)).order_by(*newest).limit(limit + 1)
    found = [runs.from_row(row) for row in tx.execute(matching)]
    if len(found) > limit:
        return FoundRuns(found[:limit], found[limit - 1].id)
    last = tx.execute(examined.offset(most_examined - 1).limit(1)).scalar_one_or_none()
    return FoundRuns(found, last)


def _matches(query: RunQuery) -> list[ColumnElement[bool]]:
    run = collection_runs.c
    # `coalesce` keeps the server from reading the indexes on the source and the state instead of the examined runs.
    those = [] if query.source is None else [func.coalesce(run.source, "") == query.source]
    if query.states:
        those.append(func.coalesce(run.status, "").in_(query.states))
    if query.search is not None:
        pattern = func.lower(pattern_of(query.search))  # by the server, which lowers the columns too
        those.append(or_(*(func.lower(text).like(pattern, escape=ESCAPE) for text in (run.login, run.user_id))))
    return those


def pattern_of(search: str) -> str:
    """The pattern of texts that contain `search`; `%` and `_` in it stand for themselves.

    Raises `InvalidArgument` for a text that is empty, too long or contains control characters.
    """
    text = search.strip(" ")
    if len(text) > LONGEST_SEARCH or not re.search(SEARCHED_TEXT, search):
        raise InvalidArgument("search", search[:LONGEST_SEARCH], f"must be 1 to {LONGEST_SEARCH} printable characters")
    for special in (ESCAPE, "%", "_"):
        text = text.replace(special, ESCAPE + special)
    return f"%{text}%"


def _place_of(tx: Transaction, run_id: int) -> tuple[datetime, int] | None:
    """The creation time of a run and its id, or those of the newest run with a smaller id."""
    run = collection_runs.c
    found = select(run.created_at, run.id).where(run.id <= run_id).order_by(run.id.desc()).limit(1)
    row = tx.execute(found).one_or_none()
    # A run that was deleted has its place directly before the found one, which is therefore part of the page.
    return None if row is None else (row.created_at, run_id)


def _is_behind(created_at: ColumnElement[datetime], at: datetime, run_id: int) -> ColumnElement[bool]:
    # The first condition repeats the second one, in a form for which every server uses the index.
    return and_(created_at <= at, or_(created_at < at, collection_runs.c.id < run_id))


def _require_range(since: datetime | None, until: datetime | None) -> None:
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and moment.tzinfo is None:
            raise InvalidArgument(name, moment.isoformat(), "must have a time zone")
    if since is not None and until is not None and since >= until:
        raise InvalidArgument("until", until.isoformat(), "must be after since")
