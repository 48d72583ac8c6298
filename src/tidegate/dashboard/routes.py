"""The routes of the dashboard, and the topics of its live stream. Both are part of the API, for scripts, too."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import InvalidArgument
from tidegate.dashboard.dead_letters import (
    MOST_SETTLED,
    DeadLetterCounter,
    DeadLetterGroups,
    DeadLetterOverview,
    GroupAction,
    GroupedDeadLetters,
    SettledGroup,
)
from tidegate.dashboard.files import TAG, Files
from tidegate.dashboard.history import History, HistoryReader, HistoryView
from tidegate.dashboard.hub import Hub
from tidegate.dashboard.overview import Overview, OverviewReader
from tidegate.dashboard.runtime_status import RuntimeStatus, RuntimeStatusReader
from tidegate.dashboard.sampler import GAP, Sampler
from tidegate.engine.api.quotas import PoolFilter, QuotaRoutes
from tidegate.engine.api.runs import Moment, RunFilter, run_page
from tidegate.engine.collection import Collection
from tidegate.http.asgi import HttpResponse
from tidegate.http.dispatch import RequestInput
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.events import EventStream
from tidegate.http.problems import ProblemType
from tidegate.http.routes import route
from tidegate.system import OpenSystem, Topic


class TopicName(StrEnum):
    """Topics of the dashboard. Each event has the same data as the topic's route."""

    OVERVIEW = "overview"  # /v1/overview
    RUNTIME = "runtime"  # /v1/runtime
    QUOTAS = "quotas"  # /v1/quotas
    RUNS = "runs"  # /v1/runs
    DEAD = "dead"  # /v1/overview/dead
    HISTORY = "history"  # /v1/history, the newest points


class Readers:
    """The readers behind the topics of the dashboard."""

    def __init__(self, collection: Collection, systems: Sequence[OpenSystem]) -> None:
        self._database = collection.parts.database
        self._systems = systems
        self.dead = DeadLetterCounter(collection, systems)
        self.overview = OverviewReader(collection, systems, self.dead)
        self.runtime = RuntimeStatusReader(collection, systems)
        self.history = History()
        self.histories = HistoryReader(self.history, collection.parts.database)
        self.sampler = Sampler(collection, systems, self.history)
        self._quotas = QuotaRoutes(collection)

    def now(self) -> datetime:
        """Current time of the database's clock."""
        return self._database.clock.now()

    def topics(self) -> Iterator[Topic]:
        """The topics of the dashboard and of all open systems."""
        yield Topic(TopicName.OVERVIEW, self.overview.read, follows_runs=True)
        yield Topic(TopicName.RUNTIME, self.runtime.read)
        yield Topic(TopicName.QUOTAS, self._read_quotas, follows_runs=True)
        yield Topic(TopicName.RUNS, self._read_runs, follows_runs=True)
        yield Topic(TopicName.DEAD, self.dead.read)
        for system in self._systems:
            yield from system.topics()
        yield Topic(TopicName.HISTORY, self._read_history, gap=GAP, silence=GAP)

    async def _read_quotas(self) -> msgspec.Struct:
        return await self._quotas.list_quotas(PoolFilter())

    async def _read_runs(self) -> msgspec.Struct:
        return await run_page(self._database, RunFilter())

    async def _read_history(self) -> HistoryView:
        await self.sampler.sample()
        history = self.history
        return HistoryView(at=self.now(), names=history.names, series=history.newest())


LETTERS = "dead letters"
_GROUP = "/v1/dead-letters/groups/{group}"
TopicText = Annotated[str, Meta(min_length=1, max_length=60)]
SeriesName = Annotated[str, Meta(min_length=1, max_length=300)]


class SeriesFilter(RequestInput, frozen=True, kw_only=True):
    """Query parameters of `/v1/history`."""

    series: Annotated[tuple[SeriesName, ...], Meta(max_length=50)] = ()
    """May be given several times. A value that ends with a slash selects all names with this prefix."""
    since: Moment | None = None
    """Only points of this time (ISO 8601, with a time zone) or later."""
    until: Moment | None = None
    """Only points before this time."""


GroupId = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,39}-[0-9a-f]{16}$")]


class GroupFilter(RequestInput, frozen=True, kw_only=True):
    """Query parameters of `/v1/dead-letters/groups`."""

    kind: Annotated[str, Meta(min_length=1, max_length=40)] | None = None
    """Only groups of this kind: `events`, `messages`, or the kind of a system, such as `campaigns`."""


class GroupBatch(RequestInput, frozen=True, kw_only=True):
    """The dead letters of a group to replay or discard."""

    after: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """Where to start: `next_after` of the previous answer. Null starts with the oldest."""
    limit: Annotated[int, Meta(ge=1, le=MOST_SETTLED)] = 200


class Watched(RequestInput, frozen=True, kw_only=True):
    """Query parameters of `/v1/live`."""

    topic: Annotated[tuple[TopicText, ...], Meta(min_length=1, max_length=20)]
    """May be given several times: overview, runtime, runs, or a topic of a system, such as campaigns."""


class DashboardRoutes:
    """Handlers of the dashboard routes. Concurrent requests for the same topic share one read."""

    def __init__(self, readers: Readers, hub: Hub, files: Files, groups: GroupedDeadLetters) -> None:
        self._readers, self._hub, self._files, self._groups = readers, hub, files, groups

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of the dashboard and its files."""
        return [
            *self._files.routes(),
            route("GET", "/v1/overview", self.show_overview, TAG),
            route("GET", "/v1/overview/dead", self.count_dead_letters, TAG),
            route(
                "GET",
                "/v1/dead-letters/groups",
                self.list_dead_letter_groups,
                LETTERS,
                problems=(ProblemType.NOT_FOUND,),
            ),
            route("POST", f"{_GROUP}/replay", self.replay_dead_letter_group, LETTERS),
            route(
                "POST", f"{_GROUP}/discard", self.discard_dead_letter_group, LETTERS, problems=(ProblemType.CONFLICT,)
            ),
            route("GET", "/v1/runtime", self.show_runtime, TAG),
            route("GET", "/v1/history", self.show_history, TAG),
            route(
                "GET",
                "/v1/live",
                self.watch_topics,
                TAG,
                media_types=(EVENTS,),
                problems=(ProblemType.TOO_MANY,),
                event=Overview,
                event_name="overview",
            ),
        ]

    def close(self) -> None:
        """End all live streams."""
        self._hub.close()

    async def show_overview(self) -> Overview | HttpResponse:
        """Show the overview: active runs, waiting jobs with reasons, failures, and conditions that need an operator.

        Parts that could not be read are null; `unknown` has the reasons.
        """
        return await self._answer(TopicName.OVERVIEW)

    async def count_dead_letters(self) -> DeadLetterOverview | HttpResponse:
        """Count the dead letters of all kinds."""
        return await self._answer(TopicName.DEAD)

    async def list_dead_letter_groups(self, query: GroupFilter) -> DeadLetterGroups:
        """Group dead letters by source, name and reason, the largest group first.

        The oldest 10,000 dead letters of each kind are examined.
        """
        return await self._groups.read(query.kind)

    async def replay_dead_letter_group(self, group: GroupId, body: GroupBatch = GroupBatch()) -> SettledGroup:  # noqa: B008 - it is frozen
        """Replay dead letters of a group, 200 or `limit` of them; continue with `next_after`.

        The request can be repeated: dead letters that were replayed are gone, and the others are replayed then.
        """
        return await self._groups.settle(group, GroupAction.REPLAY, after=body.after, limit=body.limit)

    async def discard_dead_letter_group(self, group: GroupId, body: GroupBatch = GroupBatch()) -> SettledGroup:  # noqa: B008 - it is frozen
        """Discard dead letters of a group permanently, 200 or `limit` of them; continue with `next_after`.

        The request can be repeated. 409 for kinds that can only be replayed: events, and answers of the crawl.
        """
        return await self._groups.settle(group, GroupAction.DISCARD, after=body.after, limit=body.limit)

    async def show_runtime(self) -> RuntimeStatus | HttpResponse:
        """Show streams, timers, the gate, the outbox, processes and circuit breakers."""
        return await self._answer(TopicName.RUNTIME)

    async def show_history(self, query: SeriesFilter) -> HistoryView:
        """Show values of some series over time; without `series`, list the names of all series.

        By default, the last hour: this process records a point when something changes or a client watches. Before its
        start, and with `since` also for longer ranges, there is a point for each five minutes, which the leader stores
        for 30 days (`retention.history`). Of more than 400 of these, each point is an average of some periods.
        """
        await self._readers.sampler.sample()
        histories, names = self._readers.histories, query.series
        series = await histories.series(names, query.since, query.until) if names else []
        return HistoryView(at=self._readers.now(), names=await histories.names(), series=series)

    async def watch_topics(self, query: Watched) -> HttpResponse:
        """Watch topics by server-sent events.

        Each event has the name of its topic, and the same data as the topic's route: the current state at once, and the
        new state after each change, at most once a second. A slow client gets the latest state. A `problem` event says
        why a topic cannot be read now; the read is retried. Comments keep an idle connection open.
        Topics and their routes: `overview`, `runtime`, `quotas`, `runs`, `rooms`, `campaigns` are at `/v1/` and
        their name; `snapshots` and `crawl` at `/v1/snapshots/overview` and `/v1/crawl/overview`; `dead` at
        `/v1/overview/dead`; `history` has the newest points of `/v1/history`.
        """
        for name in query.topic:
            if name not in self._hub.names:
                raise InvalidArgument("topic", name, f"must be one of {', '.join(self._hub.names)}")
        return EventStream(self._hub.listen(query.topic))

    async def _answer(self, topic: TopicName) -> HttpResponse:
        return Response(await self._hub.answer(topic), media_type="application/json")
