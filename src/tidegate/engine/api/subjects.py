"""`/v1/subjects`: what was collected or is scheduled."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.engine.api.run_details import Limit, SourceName
from tidegate.engine.collection import Collection
from tidegate.engine.reports.run_search import LONGEST_SEARCH, SEARCHED_TEXT
from tidegate.engine.reports.subjects import CollectedSubject, SubjectQuery, list_subjects
from tidegate.http.dispatch import RequestInput
from tidegate.http.routes import route

TAG = "subjects"


class SubjectFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    source: SourceName | None = None
    """Only subjects of this source. Default: of all sources."""
    search: Annotated[str, Meta(max_length=LONGEST_SEARCH, pattern=SEARCHED_TEXT)] | None = None
    """Only subjects with this text in their name or id, regardless of case. `%` and `_` have no special meaning."""
    after: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """Only subjects with ids after this one."""
    limit: Limit = 50


class SubjectPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of subjects, ordered by id."""

    subjects: list[CollectedSubject]
    next: str | None
    """URL of the next page; null on the last page."""


class SubjectRoutes:
    """The handler of the route `/v1/subjects`."""

    def __init__(self, collection: Collection) -> None:
        self._database = collection.parts.database

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The route of subjects."""
        return [route("GET", "/v1/subjects", self.list_subjects, TAG)]

    async def list_subjects(self, query: SubjectFilter) -> SubjectPage:
        """List subjects with their last run, the documents that their runs stored, and their next due time.

        A subject is listed while one of its runs is kept or one of its schedules exists.
        """
        wanted = SubjectQuery(query.source, query.search, query.after, query.limit)
        page = await self._database.read(list_subjects, wanted)
        return SubjectPage(subjects=page.subjects, next=_next(query, page.next_after))


def _next(query: SubjectFilter, after: str | None) -> str | None:
    if after is None:
        return None
    given = {"source": query.source, "search": query.search, "after": after, "limit": query.limit}
    return f"/v1/subjects?{urlencode({name: value for name, value in given.items() if value is not None})}"
