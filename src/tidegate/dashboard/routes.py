"""The addresses behind the dashboard. They are a part of the API: whatever is seen there, a script can have too."""

from collections.abc import Sequence
from typing import Annotated

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import InvalidArgument
from tidegate.dashboard.dead_letters import DeadOverview
from tidegate.dashboard.files import TAG, Files
from tidegate.dashboard.history import HistoryView
from tidegate.dashboard.hub import Hub
from tidegate.dashboard.overview import Overview
from tidegate.dashboard.runtime_status import RuntimeStatus
from tidegate.dashboard.topics import Readers, TopicName
from tidegate.http.asgi import HttpResponse
from tidegate.http.dispatch import RequestInput
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.events import EventStream
from tidegate.http.problems import ProblemType
from tidegate.http.routes import route

TopicText = Annotated[str, Meta(min_length=1, max_length=60)]
SeriesName = Annotated[str, Meta(min_length=1, max_length=300)]


class SeriesFilter(RequestInput, frozen=True, kw_only=True):
    """Which series."""

    series: Annotated[tuple[SeriesName, ...], Meta(max_length=50)] = ()
    """May be given several times. One that ends with a slash means all whose names begin so."""


class Watched(RequestInput, frozen=True, kw_only=True):
    """What to watch."""

    topic: Annotated[tuple[TopicText, ...], Meta(min_length=1, max_length=20)]
    """May be given several times: overview, machinery, runs, or a topic of a system, such as campaigns."""


class DashboardRoutes:
    """The handlers. What several ask for at once is read once."""

    def __init__(self, readers: Readers, hub: Hub, files: Files) -> None:
        self._readers, self._hub, self._files = readers, hub, files

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be asked."""
        return [
            *self._files.routes(),
            route("GET", "/v1/overview", self.show_overview, TAG),
            route("GET", "/v1/overview/dead", self.count_dead_letters, TAG),
            route("GET", "/v1/machinery", self.show_machinery, TAG),
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
        """Send everybody home who watches."""
        self._hub.close()

    async def show_overview(self) -> Overview | HttpResponse:
        """Show the deployment at a glance: what runs, what waits and why, what failed, and what needs somebody.

        A server that is away costs its own parts, which are null then; `unknown` says why.
        """
        return await self._answer(TopicName.OVERVIEW)

    async def count_dead_letters(self) -> DeadOverview | HttpResponse:
        """Count what failed for good, of every kind."""
        return await self._answer(TopicName.DEAD)

    async def show_machinery(self) -> RuntimeStatus | HttpResponse:
        """Show what carries the work: streams, timers, the gate, the outbox, processes and breakers."""
        return await self._answer(TopicName.MACHINERY)

    async def show_history(self, query: SeriesFilter) -> HistoryView:
        """Show what some figures were lately; without `series`, which figures there are.

        They are kept in the memory of this process, for an hour or so, and seen when something moves or somebody
        watches.
        """
        await self._readers.sampler.sample()
        history = self._readers.history
        now = self._readers.now()
        return HistoryView(at=now, names=history.names, series=history.series(query.series))

    async def watch_topics(self, query: Watched) -> HttpResponse:
        """Watch topics by server-sent events.

        Each event is named after its topic, and has what the topic's address answers: how things stand at once, and
        again whenever they have changed, at most once a second. Where a client is slower it gets the latest. A
        `problem` event says why a topic cannot be told now; it is tried again. Comments come when nothing else does.
        Topics and their addresses: `overview`, `machinery`, `quotas`, `runs`, `rooms`, `campaigns` are at `/v1/` and
        their name; `snapshots` and `crawl` at `/v1/snapshots/overview` and `/v1/crawl/overview`; `dead` at
        `/v1/overview/dead`; `history` has the newest points of `/v1/history`.
        """
        for name in query.topic:
            if name not in self._hub.names:
                raise InvalidArgument("topic", name, f"must be one of {', '.join(self._hub.names)}")
        return EventStream(self._hub.listen(query.topic))

    async def _answer(self, topic: TopicName) -> HttpResponse:
        return Response(await self._hub.answer(topic), media_type="application/json")
