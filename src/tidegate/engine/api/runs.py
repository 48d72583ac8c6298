"""`/v1/runs`: begin, look, follow, cancel, take up again."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlencode

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import InvalidArgument, TidegateError
from tidegate.engine.api.run_details import Id, Limit, RunDetail, RunViews
from tidegate.engine.api.run_feed import RunFeed
from tidegate.engine.api.subjects import Selected, SubjectText, read_subject
from tidegate.engine.collection import Collection
from tidegate.engine.lifecycle import RunState
from tidegate.engine.orchestrator import Trigger
from tidegate.engine.reports.progress import list_runs
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import SourceCell
from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.dispatch import Given
from tidegate.http.events import ENDED, EventStream
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.problems import ProblemType, Trouble, to_trouble
from tidegate.http.routes import Also, one_of, route
from tidegate.storage.sql import Database, Transaction

TAG = "runs"
_MOST_AT_ONCE = 500


class NewRuns(Selected, frozen=True, kw_only=True):
    """Which subjects to collect, and what of them. Give either `login` or `logins`."""

    NARROWER: ClassVar = one_of("login", "logins")

    login: SubjectText | None = None
    """One subject: the answer is 201 with the run, or 409 with the one that is active."""
    logins: Annotated[list[SubjectText], Meta(min_length=1, max_length=_MOST_AT_ONCE)] | None = None
    """Several subjects: the answer is 207, with a status for each."""
    source: Annotated[str, Meta(min_length=1, max_length=40, extra_json_schema={"format": "source-name"})] | None = None
    """The source to collect from, by default that of the setting `collect.source`; it says what subjects there are."""
    include: (
        Annotated[list[Annotated[str, Meta(extra_json_schema={"format": "kind-of-jobs"})]], Meta(min_length=1)] | None
    ) = None
    """What to collect; as the settings say, where it is left out."""
    since: Annotated[str, Meta(extra_json_schema={"anyOf": [{"format": "date"}, {"format": "date-time"}]})] | None = (
        None
    )
    """Leave out what did not change after this date or time (ISO 8601)."""
    full: bool = False
    """Read everything again, so that deletions are noticed everywhere."""
    trigger: Literal["manual", "signup"] = "manual"
    """Why: somebody asked for it, or a user joined."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one of several logins."""

    login: str
    status: int
    """201: begun; 409: there is an active run, or no credential; 422: what is wanted cannot be; 503: try again."""
    run_id: int | None = None
    """The run that was begun, or the one that is active."""
    detail: str | None = None
    """Why it was not begun."""


class RunResults(msgspec.Struct, frozen=True, kw_only=True):
    """What became of several logins, in their order."""

    begun: int
    """How many runs were begun."""
    results: list[RunResult]


class RunFilter(Given, frozen=True, kw_only=True):
    """Which runs, and how many."""

    login: SubjectText | None = None
    state: tuple[RunState, ...] = ()
    """May be given several times."""
    before: Id | None = None
    """Only runs older than this one."""
    limit: Limit = 50


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some runs, the newest first."""

    runs: list[Run]
    next: str | None
    """The address of the next page; null where there is none."""


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """What is done again."""

    run_id: int
    jobs: int
    """How many jobs had failed, and are tried again."""


class Runs:
    """The handlers."""

    def __init__(self, collection: Collection, views: RunViews, feed: RunFeed) -> None:
        self._collection, self._views, self._feed = collection, views, feed
        self._database = collection.parts.database

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with runs."""
        return [
            route(
                "POST",
                "/v1/runs",
                self.begin_runs,
                TAG,
                status=201,
                headers={"Location": "The address of the run."},
                also={207: Also("Several logins were given: each has its own status.", RunResults)},
                problems=(ProblemType.RUN_ACTIVE, ProblemType.NO_CREDENTIAL, ProblemType.CONFLICT),
            ),
            route("GET", "/v1/runs", self.list_runs, TAG),
            route("GET", "/v1/runs/{run_id}", self.show_run, TAG, media_types=("application/json", EVENTS)),
            route(
                "GET",
                "/v1/runs/{run_id}/events",
                self.follow_run,
                TAG,
                media_types=(EVENTS,),
                also={204: Also("The client has seen the last event already: there is nothing more to come.")},
                problems=(ProblemType.TOO_MANY,),
            ),
            route("POST", "/v1/runs/{run_id}/cancel", self.cancel_run, TAG, problems=(ProblemType.CONFLICT,)),
            route(
                "POST",
                "/v1/runs/{run_id}/retry",
                self.retry_run,
                TAG,
                problems=(ProblemType.RUN_ACTIVE, ProblemType.CONFLICT),
            ),
        ]

    async def begin_runs(self, body: NewRuns) -> Response[Run] | Response[RunResults]:
        """Begin to collect a subject, or several.

        A subject has one active run at most, so it is safe to send the same request again when its answer was lost:
        either the run is begun now, or 409 names the one that was. With `logins`, those that were begun stay begun
        whatever becomes of the others.
        """
        if (body.login is None) == (body.logins is None):
            raise Trouble(ProblemType.INVALID, "give either login or logins", field="login")
        cell, options = self._collection.cell(body.source), _options(body)
        if body.login is not None:
            run_id = await _begin(cell, _subject(cell, body.login, options, "login"), body.trigger)
            run = await self._collection.show(run_id)
            return Response(run, headers={"Location": f"/v1/runs/{run.id}"})
        written = enumerate(body.logins or ())
        subjects = [_subject(cell, login, options, f"logins[{place}]") for place, login in written]
        wanted = {subject.user_id: subject for subject in subjects}
        results = [await _attempt(cell, subject, body.trigger) for subject in wanted.values()]
        begun = sum(result.status == 201 for result in results)
        return Response(RunResults(begun=begun, results=results), status_code=207)

    async def list_runs(self, query: RunFilter) -> RunPage:
        """List runs, the newest first."""
        return await run_page(self._database, query)

    async def show_run(self, run_id: Id, request: HttpRequest) -> RunDetail | HttpResponse:
        """Show one run: its progress by kind of job, what failed and why, and what it waits for.

        With `Accept: text/event-stream` it is followed instead, as under `/events`.
        """
        if EVENTS in request.headers.get("accept", ""):
            return await self.follow_run(run_id, request)
        return await self._views.detail(run_id)

    async def follow_run(self, run_id: Id, request: HttpRequest) -> HttpResponse:
        """Follow one run by server-sent events.

        Each `progress` event has the whole run, as `GET /v1/runs/{run_id}` answers it; the `ended` event is the last,
        and closes the stream. Where a client is slower than the run, it gets the latest and not what came before.
        Comments come when nothing else does. `Last-Event-ID` changes nothing, since every event is whole; only who has
        seen the end is answered 204, at which a browser stops asking.
        """
        run = await self._collection.show(run_id)
        if request.headers.get("last-event-id") == ENDED and run.status in _OVER:
            return Response(b"", status_code=204)
        return EventStream(self._feed.listen(run_id))

    async def cancel_run(self, run_id: Id) -> Run:
        """Cancel a run: no further call is begun; those under way end, and change nothing.

        Asking again changes nothing. A run that is over otherwise is refused with 409.
        """
        orchestrator = await self._collection.orchestrator_of(run_id)
        await orchestrator.cancel(run_id)
        run = await orchestrator.show(run_id)
        if run.status is not RunState.CANCELED:
            raise Trouble(
                ProblemType.CONFLICT, f"the run {run_id} is {run.status}: nothing is left to cancel", run_id=run_id
            )
        return run

    async def retry_run(self, run_id: Id) -> Retried:
        """Try the failed jobs of a run again, and its statistics where they failed for good.

        The run goes on; asking again finds nothing to do.
        """
        orchestrator = await self._collection.orchestrator_of(run_id)
        return Retried(run_id=run_id, jobs=await orchestrator.retry(run_id))


def _subject(cell: SourceCell, text: str, options: Mapping[str, Any], field: str) -> Subject:
    """The subject that is meant; a problem that names the field where it is none."""
    try:
        return cell.plugin.subject(text, options)
    except InvalidArgument as error:
        raise Trouble(ProblemType.INVALID, str(error), field=field) from None


async def _begin(cell: SourceCell, subject: Subject, trigger: str) -> int:
    return await cell.begin(subject, trigger=Trigger(trigger))


async def _attempt(cell: SourceCell, subject: Subject, trigger: str) -> RunResult:
    try:
        return RunResult(login=subject.login, status=201, run_id=await _begin(cell, subject, trigger))
    except TidegateError as error:
        trouble = to_trouble(error)
        if trouble is None:
            raise
        return RunResult(login=subject.login, status=trouble.status, run_id=trouble.run_id, detail=trouble.detail)


async def run_page(database: Database, query: RunFilter) -> RunPage:
    """The runs that are asked for."""
    login = None if query.login is None else read_subject(query.login).id
    read = partial(_page, login=login, states=query.state, before=query.before, limit=query.limit + 1)
    found = await database.read(read)
    runs, more = found[: query.limit], found[query.limit :]
    return RunPage(runs=runs, next=_next(query, runs[-1].id) if more else None)


_OVER = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELED)


def _options(body: NewRuns) -> dict[str, Any]:
    """Only what was asked for: what is left out is decided by the settings of whoever works."""
    asked = {"full": body.full or None, "since": body.since, "include": body.include}
    return {**body.selection, **{name: value for name, value in asked.items() if value is not None}}


def _page(tx: Transaction, **wanted: Any) -> list[Run]:
    return list_runs(tx, **wanted)


def _next(query: RunFilter, before: int) -> str:
    given = [("login", query.login)] if query.login else []
    states = [("state", str(state)) for state in query.state]
    return f"/v1/runs?{urlencode([*given, *states, ('before', before), ('limit', query.limit)])}"
