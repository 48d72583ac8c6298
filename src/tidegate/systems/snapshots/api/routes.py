"""All routes of snapshots.

`/v1/snapshots`: read, wait for, follow and refresh snapshots, and the state of prefetching. `/v1/snapshots/dead`:
refreshes that failed permanently; replay or drop them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import InvalidArgument, NotFound, TooManyWaiting
from tidegate.core.telemetry.redaction import redact
from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Role
from tidegate.http.dispatch import RequestInput
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.events import WatchedEvents
from tidegate.http.problems import ProblemType
from tidegate.http.raw_handlers import Admission, Application
from tidegate.http.routes import FurtherAnswer, route
from tidegate.http.settings import HttpSettings
from tidegate.primitives.coalescer import AlreadyProcessing
from tidegate.runtime.change_feed import Watch
from tidegate.runtime.waiting import unless
from tidegate.system import Api, HttpContext
from tidegate.systems.snapshots.api.fast_read import PREFIX, FastRead, ReadCoalescer
from tidegate.systems.snapshots.cache import RefreshFailure, RefreshFeed
from tidegate.systems.snapshots.dead_letters import RefreshDeadLetter
from tidegate.systems.snapshots.events import FailureReason
from tidegate.systems.snapshots.model import LONGEST_KEY
from tidegate.systems.snapshots.prefetch.queries import PrefetchStatus, prefetch_status
from tidegate.systems.snapshots.reads import Freshness, SnapshotAnswer, SnapshotReader
from tidegate.systems.snapshots.service import Snapshots
from tidegate.systems.snapshots.settings import SnapshotSettings
from tidegate.systems.snapshots.topics import SnapshotsOverview, SnapshotsOverviewReader

TAG = "snapshots"
_SPARE_S = 1.0
"""A long poll ends this long before the time limit of requests."""

KindName = Annotated[str, Meta(min_length=1, max_length=40)]
SubjectKey = Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY)]


class SnapshotQuery(RequestInput, frozen=True, kw_only=True):
    """How long the answer may wait for a refresh."""

    wait: Annotated[float, Meta(ge=0, le=300)] = 0
    """If a refresh is queued: respond when it is done, or after this many seconds with the current state."""


class SnapshotView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The stored copy of a subject, with its age and pending refresh."""

    snapshot: Any
    """The stored part of the upstream's data; null if nothing is known yet, or the subject does not exist."""
    freshness: Freshness
    last_updated_at: datetime | None
    """When the content last changed."""
    last_checked_at: datetime | None
    """When the upstream was last called."""
    failure: RefreshFailure | None
    """Why the last refresh failed permanently; null if it succeeded or is still being retried."""
    update_queued: bool
    estimated_wait_ms: int | None
    """Estimated time until the refresh is done; null if none is queued, or the time is unknown."""


class RefreshAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of requesting a refresh."""

    outcome: Literal["queued", "already_processing"]
    """Whether this request or an earlier one queued the refresh."""
    version: int
    """The version of the refreshed snapshot will be this or higher; versions of a subject only grow."""


class SnapshotEvents(WatchedEvents):
    """Server-sent events of one subject: its snapshot, and again after each refresh.

    They end when the client disconnects, or `closing` is set.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        news: RefreshFeed,
        place: tuple[str, str],
        closing: asyncio.Event,
        count: Callable[[int], None],
    ) -> None:
        super().__init__(closing, count)
        self._reader, self._news, self._place = reader, news, place
        self._sent: SnapshotAnswer | None = None

    def watch(self) -> AbstractAsyncContextManager[Watch]:
        """See `WatchedEvents`."""
        kind, key = self._place
        return self._news.watch([f"{kind}/{key}"])

    async def next_event(self) -> bytes | None:
        """See `WatchedEvents`."""
        answer = await self._reader.read(*self._place)
        if not answer.is_news_after(self._sent):
            return None
        self._sent = answer
        return b"id: %d\nevent: snapshot\ndata: %b\n\n" % (answer.kept.version, answer.encode())


class SnapshotRoutes:
    """Handlers for snapshots and prefetching."""

    def __init__(self, snapshots: Snapshots, settings: HttpSettings, overview: SnapshotsOverviewReader) -> None:
        self._overview = overview
        self._snapshots, self._reader = snapshots, snapshots.reader
        self._most_listeners, self._listeners = settings.most_listeners, 0
        self._settings = snapshots.parts.settings.section(SnapshotSettings)
        longest = self._settings.longest_wait.total_seconds()
        self.longest_wait_s = max(0.0, min(longest, settings.answer_within.total_seconds() - _SPARE_S))
        self._closing = asyncio.Event()

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes; `/v1/snapshots/prefetch` comes before those with a kind and a key."""
        place = "/v1/snapshots/{kind}/{key}"
        problems = (ProblemType.INVALID,)
        return [
            route("GET", "/v1/snapshots/overview", self.show_snapshots_overview, TAG),
            route("GET", "/v1/snapshots/prefetch", self.show_prefetch, TAG),
            route(
                "GET",
                place,
                self.read_snapshot,
                TAG,
                also={
                    304: FurtherAnswer(
                        "Nothing changed since the response with the ETag that was sent as If-None-Match."
                    )
                },
                problems=problems,
                is_high_volume=True,
                headers={"ETag": "Changes with the snapshot and its freshness."},
            ),
            route(
                "GET",
                f"{place}/events",
                self.follow_snapshot,
                TAG,
                media_types=(EVENTS,),
                problems=problems,
                event=SnapshotView,
                event_name="snapshot",
            ),
            route("POST", f"{place}/refresh", self.refresh_snapshot, TAG, status=202, problems=problems),
        ]

    def close(self) -> None:
        """End waits and event streams."""
        self._closing.set()

    async def read_snapshot(
        self, kind: KindName, key: SubjectKey, query: SnapshotQuery, request: HttpRequest
    ) -> SnapshotView | HttpResponse:
        """Show the snapshot of a subject at once. If it is too old, a refresh is queued in the background.

        The request waits for the upstream only if `wait` is set.
        """
        if query.wait:
            answer = await self._wait(kind, key, min(query.wait, self.longest_wait_s))
        else:
            answer = await self._reader.read(kind, key)
        return respond(answer, request.headers.get("if-none-match"))

    async def follow_snapshot(self, kind: KindName, key: SubjectKey) -> HttpResponse:
        """Send the snapshot of a subject, and again after each refresh, as server-sent events."""
        if self._listeners >= self._most_listeners:
            raise TooManyWaiting("events", most=self._most_listeners)
        # Validate before the stream begins: after the first byte, the status cannot be changed.
        self._reader.subject(kind, key)
        return SnapshotEvents(self._reader, self._snapshots.feed, (kind, key), self._closing, self._count)

    async def refresh_snapshot(self, kind: KindName, key: SubjectKey) -> Response[RefreshAsked]:
        """Request a refresh, whatever the age of the snapshot. Follow its events, or read it with `wait`."""
        outcome = await self._snapshots.refresh(kind, key)
        state = "already_processing" if isinstance(outcome, AlreadyProcessing) else "queued"
        return Response(RefreshAsked(outcome=state, version=outcome.version))

    async def show_snapshots_overview(self) -> SnapshotsOverview:
        """Show an overview of snapshots: calls against their limits, ages, and waiting refreshes."""
        return await self._overview.read()

    async def show_prefetch(self) -> PrefetchStatus:
        """Show the state of prefetching: the number of due subjects, and the budget spent today."""
        return await self._snapshots.parts.database.read(prefetch_status, self._settings.prefetch)

    async def _wait(self, kind: str, key: str, within_s: float) -> SnapshotAnswer:
        answer = await unless(self._closing, self._reader.wait(kind, key, within_s))
        # None: the server is closing. The caller gets the current state instead of an error.
        return answer if answer is not None else await self._reader.read(kind, key)

    def _count(self, change: int) -> None:
        self._listeners += change


def respond(answer: SnapshotAnswer, known: str | None) -> HttpResponse:
    """The response with the snapshot as it is stored, or 304 when the caller has it."""
    tag = answer.tag
    headers = {"etag": tag, "cache-control": "no-cache"}
    if known is not None and (known == tag or tag in known.split(", ")):
        return Response(b"", status_code=304, headers=headers)
    return Response(answer.encode(), headers=headers, media_type="application/json")


def snapshot_api(snapshots: Snapshots, overview: SnapshotsOverviewReader, http: HttpContext) -> Api:
    """Snapshots, their dead letters and their prefetching, with the raw handler of reads."""
    routes = SnapshotRoutes(snapshots, http.settings, overview)
    coalescer = ReadCoalescer(snapshots.reader.read, snapshots.feed)
    admission = Admission(Authenticator(http.access, ()), Role.READ)

    def fast_read(application: Application) -> FastRead:
        longest_wait_s = routes.longest_wait_s
        return FastRead(application, snapshots.reader, admission, coalescer, longest_wait_s=longest_wait_s)

    def close() -> None:
        routes.close()
        coalescer.close()

    # The fixed addresses come first: `/v1/snapshots/{kind}/{key}` also matches `/v1/snapshots/dead/{letter_id}`.
    every = [*DeadSnapshotRoutes(snapshots).routes(), *routes.routes()]
    return Api(routes=every, close=close, raw={PREFIX: fast_read})


T = TypeVar("T")

Limit = Annotated[int, Meta(ge=1, le=500)]
LetterId = Annotated[str, Meta(pattern=r"^[0-9]{1,18}(-[0-9]{1,18}){1,2}$")]
"""Time and number of a stream's entry; time, partition and offset on Kafka."""


class DeadFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    after: LetterId | None = None
    """Only letters after this one."""
    limit: Limit = 50


class DeadSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A refresh that failed permanently, with the reason."""

    id: str
    subject: str
    """Kind and key, separated by a slash."""
    reason: FailureReason
    message: str
    trace: str | None
    retries: int
    """Number of attempts after the first one."""
    failed_at: datetime
    worker: str
    """The process that gave it up."""
    event: Any
    """The event as it was received."""


class DeadPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of dead letters, oldest first."""

    letters: list[DeadSnapshot]
    next: str | None
    """The URL of the next page; null on the last one."""


class DeadRest(RequestInput, frozen=True, kw_only=True):
    """The dead letters to replay."""

    after: LetterId | None = None
    """Only letters after this one: `next_after` of the previous response."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 100


class DeadReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying dead letters."""

    replayed: int
    stayed: int
    """Dead letters that stay: their subject is being refreshed, or this version cannot read them."""
    next_after: str | None
    """Where to continue; null if there are no more."""


class DeadSettled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying or dropping a dead letter."""

    id: str
    outcome: Literal["replayed", "already_processing", "dropped"]
    """`already_processing`: the subject is being refreshed, so nothing was published, and the letter stays."""


class DeadSnapshotRoutes:
    """Handlers for dead letters of snapshots."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._dead = snapshots.dead

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of dead letters."""
        place = "/v1/snapshots/dead/{letter_id}"
        problems = (ProblemType.INVALID,)
        return [
            route("GET", "/v1/snapshots/dead", self.list_dead_snapshots, TAG, problems=problems),
            route("POST", "/v1/snapshots/dead/replay", self.replay_dead_snapshots, TAG, problems=problems),
            route("GET", place, self.show_dead_snapshot, TAG, problems=problems),
            route("DELETE", place, self.drop_dead_snapshot, TAG, problems=problems),
            route("POST", f"{place}/replay", self.replay_dead_snapshot, TAG, problems=problems),
        ]

    async def list_dead_snapshots(self, query: DeadFilter) -> DeadPage:
        """List refreshes that failed permanently."""
        letters = await self._dead.list(after=query.after, limit=query.limit + 1)
        shown, more = letters[: query.limit], letters[query.limit :]
        link = f"/v1/snapshots/dead?{urlencode({'after': shown[-1].id, 'limit': query.limit})}" if more else None
        return DeadPage(letters=[view(letter) for letter in shown], next=link)

    async def show_dead_snapshot(self, letter_id: LetterId) -> DeadSnapshot:
        """Show one dead letter."""
        return view(await _there(letter_id, self._dead.get(letter_id)))

    async def replay_dead_snapshots(self, body: DeadRest = DeadRest()) -> DeadReplayed:  # noqa: B008 - it is frozen
        """Request the oldest failed refreshes again, 100 or `limit` of them; continue with `next_after`."""
        letters = await self._dead.list(after=body.after, limit=body.limit + 1)
        some = letters[: body.limit]
        replayed = await self._dead.replay_several([letter.id for letter in some])
        behind = some[-1].id if len(letters) > body.limit else None
        return DeadReplayed(replayed=replayed, stayed=len(some) - replayed, next_after=behind)

    async def replay_dead_snapshot(self, letter_id: LetterId) -> DeadSettled:
        """Request a refresh again, under a new version; the letter stays if the subject is being refreshed already."""
        outcome = await _there(letter_id, self._dead.replay(letter_id))
        is_ours = not isinstance(outcome, AlreadyProcessing)
        return DeadSettled(id=letter_id, outcome="replayed" if is_ours else "already_processing")

    async def drop_dead_snapshot(self, letter_id: LetterId) -> DeadSettled:
        """Drop a dead letter permanently."""
        if not await _there(letter_id, self._dead.drop(letter_id)):
            raise NotFound("dead letter", letter_id)
        return DeadSettled(id=letter_id, outcome="dropped")


async def _there(letter_id: str, doing: Awaitable[T]) -> T:
    """The result of `doing`; an id in a form that the transport does not use is not found."""
    try:
        return await doing
    except InvalidArgument as error:
        if error.name != "entry_id":
            raise
        raise NotFound("dead letter", letter_id) from None


def view(letter: RefreshDeadLetter) -> DeadSnapshot:
    """A dead letter for callers; secrets in its event are redacted."""
    update = letter.update
    return DeadSnapshot(
        id=letter.id,
        subject=update.subject_id,
        reason=update.reason,
        message=update.message,
        trace=update.trace,
        retries=update.retries,
        failed_at=update.failed_at,
        worker=update.worker,
        event=redact(msgspec.json.decode(update.event)),
    )
