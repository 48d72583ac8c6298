"""All routes of waiting rooms, and the server-sent events of places in line.

Each visitor receives the state of their place after it changes. Each event has the whole state, so no event has to be
repeated: a client that reconnects receives the current state, and a slow client receives the latest one. The stream
ends with the event `inside` or `nowhere`. A stream needs no task for its events, however many streams there are: the
task that reads the line writes them.
"""

import asyncio
import random
import resource
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from tidegate.core.clock import milliseconds
from tidegate.http.access import Access
from tidegate.http.asgi import Receive, Scope, Send, is_for_head
from tidegate.http.events import ENDED, HEARTBEAT_S, EventResponse, chunk, gone, while_connected
from tidegate.http.raw_handlers import Application, Connection, stream_of
from tidegate.http.settings import SPARE_FILES, HttpSettings
from tidegate.runtime.waiting import end
from tidegate.storage.valkey import Valkey
from tidegate.system import Api
from tidegate.systems.waiting_room import InLine as Waiting
from tidegate.systems.waiting_room import Inside, LineView, NotPresent, Pace, Standing, WaitingRoom, WaitingRooms
from tidegate.systems.waiting_room import VisitorPass as Pass
from tidegate.systems.waiting_room import VisitorStatus as Answer
from tidegate.systems.waiting_room.api.fast_place import PREFIX, FastPlace
from tidegate.systems.waiting_room.api.pages.routes import PageRoutes
from tidegate.systems.waiting_room.api.places import AdmissionRates, PlaceRoutes, place_of
from tidegate.systems.waiting_room.api.rooms import RoomRoutes
from tidegate.systems.waiting_room.watching import WatcherRegistry as Watching

_RECONNECT_MS = (1000, 5000)
"""Range of reconnect delays; random, because thousands of clients reconnect when a process ends."""
_LEAST_S = 1.0
_COMMENT = b": nothing new\n\n"
_PATIENCE_S = 60.0
"""A client that reads nothing for this long is disconnected, so that it does not count as a sign of life."""
_LATER_MS = 1000
"""Changes of the start time below this are not sent."""


class PlaceStream:
    """The events of one visitor, with the one that is not sent yet; a `Watcher`."""

    def __init__(self, room: WaitingRoom, shown: Pass) -> None:
        self.user = shown.user
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room, self._kind = room, shown.kind
        self._renew_ms = self._half_of(shown.until_ms)
        self._seen: object = None
        self._starts_ms = 0
        self._number = 0
        self._latest: bytes | None = None
        self._token: str | None = None
        self._is_over = False
        self._offer: Callable[[], None] = _not_yet
        self.sent_at = time.monotonic()
        """When something was last sent, or when there was last nothing to send."""

    def show(self, standing: Standing, view: LineView, pace: Pace | None) -> None:
        """See `Watcher`."""
        if self._is_over:
            return
        # A pass that was made but not sent yet must not be lost if this call makes none.
        self._token = self._new_pass(standing) or self._token
        seen = self._digest(standing, view, pace)
        if seen == self._seen and self._token is None:
            return
        self._seen, self._number = seen, self._number + 1
        self._is_over = isinstance(standing, (Inside, NotPresent))
        # A pass that was not sent yet is kept for the event that replaces the unsent one.
        place = place_of(self._room, Answer(self.user, standing, self._token, view.waiting), pace)
        name = ENDED if self._is_over else str(self._number)
        self._latest = b"id: %b\nevent: place\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(place))
        self._offer()

    @property
    def is_begun(self) -> bool:
        """Whether a client is connected."""
        return self._offer is not _not_yet

    def begin(self, offer: Callable[[], None]) -> None:
        """Connect the client; `offer` is called when there is something to `take`."""
        self._offer = offer
        if self._latest is not None:
            offer()

    def take(self) -> bytes | None:
        """The event to send now, once; None if there is none."""
        latest, self._latest, self._token = self._latest, None, None
        self.sent_at = time.monotonic()
        if self._is_over:
            self.end()
        return latest

    def beat(self) -> None:
        """Send a comment, because nothing was sent for a long time."""
        if self._latest is None:
            self._latest = _COMMENT
            self._offer()

    def end(self) -> None:
        """End the stream; nothing more is sent."""
        self._is_over = True
        if not self.ended.done():
            self.ended.set_result(None)

    def _digest(self, standing: Standing, view: LineView, pace: Pace | None) -> object:
        """The part of the state that is worth an event when it changes."""
        if not isinstance(standing, Waiting):
            return type(standing)
        if standing.ahead is not None:
            return standing.ahead, view.waiting, pace, self._room.room.is_paused
        starts_ms = self._room.now_ms() + standing.opens_in_ms
        if abs(starts_ms - self._starts_ms) > _LATER_MS:
            self._starts_ms = starts_ms
        return self._starts_ms, view.waiting

    def _new_pass(self, standing: Standing) -> str | None:
        """A new pass if the kind changed, or half of the previous pass's time is over; None otherwise."""
        kind = "inside" if isinstance(standing, Inside) else "waiting"
        if isinstance(standing, NotPresent) or (kind == self._kind and self._room.now_ms() < self._renew_ms):
            return None
        token = self._room.answer(self.user, standing).token
        if token is not None:
            given = self._room.read(token)
            self._kind, self._renew_ms = given.kind, self._half_of(given.until_ms)
        return token

    def _half_of(self, until_ms: int) -> int:
        return until_ms - milliseconds(self._room.room.plan.abandon_after) // 2

    def __repr__(self) -> str:
        return f"PlaceStream({self._room.name!r}, {self.user!r})"


class PlaceStreams:
    """All place streams of this process."""

    def __init__(self, valkey: Valkey, *, most: int) -> None:
        """Allow `most` open streams at once, or fewer if file descriptors for their connections are limited."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed != resource.RLIM_INFINITY:
            most = max(1, min(most, allowed - SPARE_FILES))
        self._watching = Watching(valkey, most=most)
        self.streams: dict[PlaceStream, Connection | None] = {}
        """Open streams, each with its direct connection if there is one."""
        self._ticking: asyncio.Task[None] | None = None
        self._is_closing = False

    @asynccontextmanager
    async def opened(
        self, room: WaitingRoom, shown: Pass, connection: Connection | None
    ) -> AsyncGenerator[PlaceStream]:
        """Open a stream for the duration of a block; raises `TooManyWaiting`."""
        # `join` may raise, so the stream is registered after it.
        stream = PlaceStream(room, shown)
        self._watching.join(room, stream)
        self.streams[stream] = connection
        # The server began to close while this request was admitted: the client reconnects to another process.
        if self._is_closing:
            stream.end()
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick(), name="beats of places")
        try:
            yield stream
        finally:
            stream.end()
            del self.streams[stream]
            await self._watching.leave(room, stream)
            await self._rest()

    def close(self) -> None:
        """End all streams; their clients reconnect to another process."""
        self._is_closing = True
        for stream in self.streams:
            stream.end()

    async def _rest(self) -> None:
        if not self.streams and self._ticking is not None:
            ticking, self._ticking = self._ticking, None
            await end(ticking)

    async def _tick(self) -> None:
        """Write to clients that received nothing for a long time, and disconnect those that do not read."""
        while True:
            # Sleep until the longest silent stream is due, instead of one timer for each stream.
            longest_silent = min((stream.sent_at for stream in self.streams), default=time.monotonic())
            await asyncio.sleep(max(_LEAST_S, longest_silent + HEARTBEAT_S - time.monotonic()))
            for stream, connection in self.streams.items():
                silent_s = time.monotonic() - stream.sent_at
                # A clogged connection gets no comment, which would only fill its buffer. If it
                # stays clogged, it is aborted.
                if silent_s >= HEARTBEAT_S and (connection is None or not connection.is_backlogged):
                    stream.beat()
                elif silent_s >= _PATIENCE_S and connection is not None:
                    connection.abort()


class PlaceEvents(EventResponse):
    """The event response of one place. Raises `TooManyWaiting` before it starts if too many streams are open."""

    def __init__(self, streams: PlaceStreams, room: WaitingRoom, shown: Pass) -> None:
        super().__init__()
        self._streams, self._room, self._shown = streams, room, shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the visitor is inside or nowhere, the client disconnects, or the server stops."""
        start = self.start()
        if is_for_head(scope):
            await send(start)
        else:
            connection = stream_of(scope)
            async with self._streams.opened(self._room, self._shown, connection) as stream:
                await send(start)
                await send(chunk(b"retry: %d\n\n" % random.randint(*_RECONNECT_MS)))  # noqa: S311 - no secret
                await (
                    _send_events(stream, send, receive) if connection is None else _write(stream, connection, receive)
                )
        await send(chunk(b"", more=False))


async def _write(stream: PlaceStream, connection: Connection, receive: Receive) -> None:
    """Write each event directly to the connection, from the task that produced it."""

    def offer() -> None:
        # A clogged connection calls `offer` again when it is writable. Until then, newer states replace the unsent one.
        if not connection.is_backlogged and (latest := stream.take()) is not None:
            connection.write(latest)

    connection.begin(offer)
    stream.begin(offer)
    leaving = asyncio.create_task(gone(receive), name="client")
    try:
        await asyncio.wait([leaving, stream.ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(leaving)


async def _send_events(stream: PlaceStream, send: Send, receive: Receive) -> None:
    something = asyncio.Event()
    # Without direct access to the connection: this task waits for events and sends them.
    stream.begin(something.set)
    stream.ended.add_done_callback(lambda _: something.set())

    async def send_all() -> None:
        while not stream.ended.done():
            await something.wait()
            something.clear()
            if (latest := stream.take()) is not None:
                await send(chunk(latest))

    await while_connected(send_all(), receive)


def _not_yet() -> None:
    """Placeholder until a client is connected; the latest event is sent then."""


def room_api(waiting_rooms: WaitingRooms, settings: HttpSettings, access: Access | None = None) -> Api:
    """Rooms, places in line, and the page of visitors.

    It takes no `HttpContext`, so that other programs can serve the same routes:
    `build_application(api.routes, settings)` builds an application from them that can be mounted.
    """
    paces, streams = AdmissionRates(), PlaceStreams(waiting_rooms.valkey, most=settings.most_watchers)
    places = PlaceRoutes(waiting_rooms, paces, partial(PlaceEvents, streams))
    routes = [RoomRoutes(waiting_rooms, paces), places, PageRoutes(waiting_rooms, paces, settings)]
    access, largest_body = access or Access(settings), settings.largest_body

    def fast_place(application: Application) -> FastPlace:
        return FastPlace(application, waiting_rooms, paces, access, largest_body=largest_body)

    return Api(
        routes=[route for each in routes for route in each.routes()],
        close=streams.close,
        raw={PREFIX: fast_place},
    )
