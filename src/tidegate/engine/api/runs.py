"""`/v1/runs`: start, show, follow, cancel and retry runs.

Live progress is sent as server-sent events. A run is read once for all its listeners, and only after it changed: each
run with listeners has one follower task, which waits for an entry of the change feed, reads the run and passes the
result to every listener. A slow listener receives the latest state and misses the states in between.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlencode

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.backoff import Backoff
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import NotFound, TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.api.run_details import (
    Id,
    Limit,
    RunDetail,
    RunDetailReader,
    Selected,
    SourceName,
    SubjectText,
    read_subject,
)
from tidegate.engine.change_feed import RunChangeFeed, Watch
from tidegate.engine.collection import Collection
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState
from tidegate.engine.orchestrator import Trigger
from tidegate.engine.reports.run_search import LONGEST_SEARCH, SEARCHED_TEXT, RunQuery, find_runs
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import SourceCell
from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.dispatch import RequestInput
from tidegate.http.events import ENDED, Channel, ChannelState, EventStream, Listener, ListenerLimit
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.problems import ProblemType, RequestFailed, to_request_failed
from tidegate.http.routes import FurtherAnswer, one_of, route
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end
from tidegate.storage.sql import Database

log = get_logger(__name__)

_CALM_AFTER_S = 1.0
"""A run is read once more when it has not changed for this long: the gate knows what it waits for only a moment after
its last change."""
_RETRIES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=10))


class RunFeed:
    """The runs that clients of this process follow."""

    def __init__(
        self,
        read: Callable[[int], Awaitable[RunDetail]],
        change_feed: RunChangeFeed,
        seats: ListenerLimit,
        *,
        gap: timedelta = timedelta(milliseconds=200),
        longest_silence: timedelta = timedelta(minutes=1),
    ) -> None:
        """`gap` is the minimum time between two reads of a run.

        A run without a change for `longest_silence` is read anyway, because entries of the change feed can be lost.
        """
        self._read, self._change_feed, self._longest_silence_s = read, change_feed, longest_silence.total_seconds()
        self._seats, self._gap_ms = seats, gap.total_seconds() * 1000
        self._channels: dict[int, Channel] = {}
        self._closing = asyncio.Event()
        self._outage = Outage("http.feed")

    @asynccontextmanager
    async def listen(self, run_id: int) -> AsyncGenerator[Listener]:
        """Follow a run: receive its current state and each change. Raises `TooManyWaiting` if there are too many."""
        with self._seats.taken():
            channel = self._channels.get(run_id)
            if channel is None:
                channel = self._channels[run_id] = Channel()
                channel.following = asyncio.create_task(self._follow(run_id, channel), name=f"follow run {run_id}")
            listener = Listener([channel], self._closing)
            try:
                yield listener
            finally:
                listener.leave()
                if not channel.listeners:
                    await self._forget(run_id, channel)

    def close(self) -> None:
        """End the streams of all listeners."""
        self._closing.set()
        for channel in self._channels.values():
            channel.wake()

    async def _forget(self, run_id: int, channel: Channel) -> None:
        # A later listener may have opened a new channel for the same run.
        if self._channels.get(run_id) is channel:
            del self._channels[run_id]
        if channel.following is not None:
            await end(channel.following)

    async def _follow(self, run_id: int, channel: Channel) -> None:
        """Publish the changes of a run until it ends. A listener that comes later opens a new channel."""
        try:
            async with self._change_feed.watch([run_id]) as watch:
                await self._show_all(run_id, channel, watch)
        except NotFound:  # the run was removed while it was followed
            pass
        except Exception as error:  # a defect: the streams end, and clients may connect again
            log.error("http.feed_failed", run=run_id, exc_info=error)
        finally:
            channel.has_ended = True
            if self._channels.get(run_id) is channel:
                del self._channels[run_id]
            channel.wake()

    async def _show_all(self, run_id: int, channel: Channel, watch: Watch) -> None:
        """Read the run after each change, and show it to the listeners until it has ended."""
        number, failures, shown, is_calm = 0, 0, b"", False
        while True:
            began_ms = monotonic_ms()
            try:
                detail = await self._read(run_id)
            except Unavailable as error:
                failures += 1
                await self._outage.pause(error, failures)
                continue
            self._outage.over()
            failures, number = 0, number + 1
            is_last, body = detail.status not in ACTIVE_RUNS, msgspec.json.encode(detail)
            # Many changes of a run do not change what is shown.
            if body != shown:
                channel.show(_snapshot(number, body, is_last=is_last))
                shown = body
            if is_last:
                return
            # The gap counts from the start of the read.
            await asyncio.sleep(max(0.0, self._gap_ms - (monotonic_ms() - began_ms)) / 1000)
            is_calm = not await watch.wait(self._longest_silence_s if is_calm else _CALM_AFTER_S)


def _snapshot(number: int, body: bytes, *, is_last: bool) -> ChannelState:
    if is_last:
        return ChannelState.of(number, body, ENDED, is_last=True, ident=ENDED)
    return ChannelState.of(number, body, "progress")


TAG = "runs"
_MOST_AT_ONCE = 500
Moment = Annotated[datetime, Meta(tz=True)]


class NewRuns(Selected, frozen=True, kw_only=True):
    """The subjects to collect, and the options of their runs. Exactly one of `login` and `logins` is required."""

    NARROWER: ClassVar = one_of("login", "logins")

    login: SubjectText | None = None
    """One subject: the answer is 201 with the run, or 409 with the run that is already active."""
    logins: Annotated[list[SubjectText], Meta(min_length=1, max_length=_MOST_AT_ONCE)] | None = None
    """Several subjects: the answer is 207 with a status for each."""
    source: SourceName | None = None
    """The source to collect from. Default: the setting `collect.source`. The source determines the form of subjects."""
    include: (
        Annotated[list[Annotated[str, Meta(extra_json_schema={"format": "kind-of-jobs"})]], Meta(min_length=1)] | None
    ) = None
    """The kinds to collect. Default: the settings of the source."""
    since: Annotated[str, Meta(extra_json_schema={"anyOf": [{"format": "date"}, {"format": "date-time"}]})] | None = (
        None
    )
    """Skip items that did not change after this date or time (ISO 8601)."""
    full: bool = False
    """Read everything again, so that all deletions are detected."""
    trigger: Literal["manual", "signup"] = "manual"
    """What started the run: a manual request, or the sign-up of a user."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result for one of several subjects."""

    login: str
    status: int
    """201: started; 409: a run is active, or no credential; 422: invalid request; 503: retry later."""
    run_id: int | None = None
    """The run that was started, or the active run."""
    detail: str | None = None
    """Why no run was started."""


class RunResults(msgspec.Struct, frozen=True, kw_only=True):
    """The results for several subjects, in the order of the request."""

    begun: int
    """How many runs were started."""
    results: list[RunResult]


class RunFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    login: SubjectText | None = None
    """Only runs of this subject."""
    source: SourceName | None = None
    """Only runs of this source, which also decides the form of `login`. Default: runs of all sources; `login` has the
    form of the setting `collect.source`."""
    state: tuple[RunState, ...] = ()
    """Can be repeated."""
    search: Annotated[str, Meta(max_length=LONGEST_SEARCH, pattern=SEARCHED_TEXT)] | None = None
    """Only runs with this text in the name or the id of their subject, regardless of case. `%` and `_` have no special
    meaning. A request examines at most 20,000 runs of the time range: a page can be shorter than `limit`, even empty,
    and have a next page."""
    since: Moment | None = None
    """Only runs that were created at this time (ISO 8601, with a time zone) or later."""
    until: Moment | None = None
    """Only runs that were created before this time."""
    before: Id | None = None
    """Only runs older than this one."""
    limit: Limit = 50


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs, newest first."""

    runs: list[Run]
    next: str | None
    """URL of the next page; null on the last page."""


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The run and the number of jobs that are retried."""

    run_id: int
    jobs: int
    """How many failed jobs are retried."""


class RunRoutes:
    """The handlers of the routes under `/v1/runs`."""

    def __init__(self, collection: Collection, details: RunDetailReader, feed: RunFeed) -> None:
        self._collection, self._details, self._feed = collection, details, feed
        self._database = collection.parts.database

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of runs."""
        return [
            route(
                "POST",
                "/v1/runs",
                self.begin_runs,
                TAG,
                status=201,
                headers={"Location": "The address of the run."},
                also={207: FurtherAnswer("Several subjects were given. Each has its own status.", RunResults)},
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
                also={204: FurtherAnswer("The client has already received the last event.")},
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
        """Start a run for one subject, or a run for each of several subjects.

        A subject has at most one active run, so a request can be repeated if its answer was lost: the run is started
        now, or 409 names the active one. With `logins`, a failure for one subject does not affect the others.
        """
        if (body.login is None) == (body.logins is None):
            raise RequestFailed(ProblemType.INVALID, "exactly one of login and logins is required", field="login")
        cell, options = self._collection.cell(body.source), _options(body)
        if body.login is not None:
            run_id = await _begin(cell, read_subject(cell.plugin, body.login, options), body.trigger)
            run = await self._collection.show(run_id)
            return Response(run, headers={"Location": f"/v1/runs/{run.id}"})
        written = enumerate(body.logins or ())
        subjects = [read_subject(cell.plugin, login, options, field=f"logins[{place}]") for place, login in written]
        wanted = {subject.user_id: subject for subject in subjects}
        results = [await _attempt(cell, subject, body.trigger) for subject in wanted.values()]
        begun = sum(result.status == 201 for result in results)
        return Response(RunResults(begun=begun, results=results), status_code=207)

    async def list_runs(self, query: RunFilter) -> RunPage:
        """List runs, newest first."""
        login = None
        if query.login is not None:
            login = read_subject(self._collection.cell(query.source).plugin, query.login).login
        return await run_page(self._database, query, login)

    async def show_run(self, run_id: Id, request: HttpRequest) -> RunDetail | HttpResponse:
        """Show one run: its progress by kind of job, its failed jobs with their errors, and what it waits for.

        With `Accept: text/event-stream` the answer is a stream, as of `/v1/runs/{run_id}/events`.
        """
        if EVENTS in request.headers.get("accept", ""):
            return await self.follow_run(run_id, request)
        return await self._details.detail(run_id)

    async def follow_run(self, run_id: Id, request: HttpRequest) -> HttpResponse:
        """Follow one run by server-sent events.

        Each `progress` event contains the whole run as in `GET /v1/runs/{run_id}`. The `ended` event is the last one;
        the server then closes the stream. A client that is slower than the run receives the latest state and misses
        the states in between. Comments are sent as keep-alive. `Last-Event-ID` is not needed to resume, because every
        event is complete. A client that already received the `ended` event gets 204, so that a browser does not
        reconnect.
        """
        run = await self._collection.show(run_id)
        if request.headers.get("last-event-id") == ENDED and run.status in _OVER:
            return Response(b"", status_code=204)
        return EventStream(self._feed.listen(run_id))

    async def cancel_run(self, run_id: Id) -> Run:
        """Cancel a run. No further jobs are started; the results of jobs in progress are discarded.

        Repeating the request has no effect. 409 if the run is already completed or failed.
        """
        orchestrator = await self._collection.orchestrator_of(run_id)
        await orchestrator.cancel(run_id)
        run = await orchestrator.show(run_id)
        if run.status is not RunState.CANCELED:
            raise RequestFailed(
                ProblemType.CONFLICT, f"run {run_id} is already {run.status} and cannot be canceled", run_id=run_id
            )
        return run

    async def retry_run(self, run_id: Id) -> Retried:
        """Retry the failed jobs of a run, and its statistics if they failed permanently.

        The run becomes active again. Repeating the request has no effect.
        """
        orchestrator = await self._collection.orchestrator_of(run_id)
        return Retried(run_id=run_id, jobs=await orchestrator.retry(run_id))


async def _begin(cell: SourceCell, subject: Subject, trigger: str) -> int:
    return await cell.begin(subject, trigger=Trigger(trigger))


async def _attempt(cell: SourceCell, subject: Subject, trigger: str) -> RunResult:
    try:
        return RunResult(login=subject.login, status=201, run_id=await _begin(cell, subject, trigger))
    except TidegateError as error:
        failure = to_request_failed(error)
        if failure is None:
            raise
        return RunResult(login=subject.login, status=failure.status, run_id=failure.run_id, detail=failure.detail)


async def run_page(database: Database, query: RunFilter, login: str | None = None) -> RunPage:
    """Read the page of runs that a filter selects; `login` is the subject of the filter as the source writes it."""
    wanted = RunQuery(
        search=query.search,
        since=query.since,
        until=query.until,
        login=login,
        source=query.source,
        states=query.state,
        before=query.before,
        limit=query.limit,
    )
    page = await database.read(find_runs, wanted)
    return RunPage(runs=page.runs, next=None if page.next_before is None else _next(query, page.next_before))


_OVER = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELED)


def _options(body: NewRuns) -> dict[str, Any]:
    """Only the options of the request; the settings of the worker decide the others."""
    asked = {"full": body.full or None, "since": body.since, "include": body.include}
    return {**body.selection, **{name: value for name, value in asked.items() if value is not None}}


def _next(query: RunFilter, before: int) -> str:
    texts = {"login": query.login, "source": query.source, "search": query.search}
    moments = {name: at and at.isoformat() for name, at in (("since", query.since), ("until", query.until))}
    given = [(name, value) for name, value in (texts | moments).items() if value]
    states = [("state", str(state)) for state in query.state]
    return f"/v1/runs?{urlencode([*given, *states, ('before', before), ('limit', query.limit)])}"
