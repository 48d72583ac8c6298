"""Live places: all watchers see the line move, whichever process moves it, and no watcher is dropped."""

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.http.serving import Client, Event
from tests.servers.migrated import migrated_file
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.refusing import lines_of_outage, refusing
from tests.servers.valkey import ValkeyServer
from tests.systems.waiting_room.counter import HEADER, bring, served, showing
from tests.systems.waiting_room.harness import (
    ROOM,
    SETTLE_AFTER,
    RoomHarness,
    add_visitors,
    harness_at,
    line,
    open_signer,
)
from tests.waiting import look_again, patience, until
from tidegate.core.clock import ManualClock
from tidegate.core.errors import TooManyWaiting
from tidegate.http import Binding
from tidegate.http.application import build_application
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings
from tidegate.runtime import outage
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.waiting_room import (
    AdmissionState,
    InLine,
    Inside,
    LineView,
    NotPresent,
    Pace,
    RoomPlan,
    Standing,
    WaitingRooms,
    WaitingRoomSettings,
)
from tidegate.systems.waiting_room.api.places import AdmissionRates, PlaceRoutes
from tidegate.systems.waiting_room.api.routes import PlaceEvents, PlaceStream, PlaceStreams
from tidegate.systems.waiting_room.session_store import settle
from tidegate.systems.waiting_room.watching import WatcherRegistry

EVENTS = f"/v1/rooms/{ROOM}/place/events"


def another(harness: RoomHarness, valkey: Valkey | None = None) -> WaitingRooms:
    """The same rooms as another process has them."""
    settings = WaitingRoomSettings(settle_after=SETTLE_AFTER)
    return WaitingRooms(valkey or harness.valkey, harness.database, open_signer, settings)


@pytest.fixture
async def client(harness: RoomHarness) -> AsyncGenerator[Client]:
    async with served(harness.rooms) as opened:
        yield opened


def places(client: Client, token: str, **headers: str) -> AsyncGenerator[Event]:
    """The events of one who watches, comments left out."""

    async def only_places() -> AsyncGenerator[Event]:
        async for event in client.events(EVENTS, **{HEADER: token}, **headers):
            if event.kind:
                yield event

    return only_places()


async def next_place(stream: AsyncIterator[Event]) -> dict[str, Any]:
    async with patience():
        return (await anext(stream)).data


async def watched(client: Client, token: str) -> list[Event]:
    """All events until the stream ends."""
    async with patience():
        return [event async for event in places(client, token)]


async def test_a_watching_visitor_gets_every_change_of_position_until_admitted(client: Client, harness: RoomHarness):
    await harness.open(capacity=0)
    ada, bob = [(await bring(client, user))["pass"] for user in ("ada", "bob")]
    stream = places(client, bob)

    first = await next_place(stream)
    await client.ask("DELETE", f"/v1/rooms/{ROOM}/place", **showing(ada))
    second = await next_place(stream)
    await harness.rooms.change_plan(ROOM, {"capacity": 1})
    await harness.run_worker()
    rest = [event async for event in stream]

    assert (first["state"], first["position"], first["waiting"], first["pass"]) == ("waiting", 2, 2, None)
    assert (second["position"], second["waiting"]) == (1, 1)
    assert (rest[-1].id, rest[-1].data["state"], rest[-1].data["left_ms"]) == ("ended", "inside", 600_000)
    assert {event.data["state"] for event in rest[:-1]} <= {"waiting", "entering"}
    within = rest[-1].data["pass"]
    assert (await client.post(f"/v1/rooms/{ROOM}/check", **showing(within))).json["user"] == "bob"
    back = await client.get(EVENTS, headers={HEADER: within, "Last-Event-ID": "ended"})
    assert (back.status, back.body) == (204, b"")


async def test_a_watching_visitor_in_admission_is_told_the_result_of_it(client: Client, harness: RoomHarness):
    room = await harness.open(capacity=0)
    stream = places(client, (await bring(client, "ada"))["pass"])
    await harness.rooms.change_plan(ROOM, {"capacity": 1})

    async def seen(state: str) -> dict[str, Any]:
        while (place := await next_place(stream))["state"] != state:
            pass
        return place

    await seen("waiting")
    taken = await room.admitter.take()
    await seen("entering")
    await room.admitter.confirm(
        await harness.database.transaction(settle, ROOM, taken.entries, AdmissionState.ROLLED_BACK)
    )
    assert (await seen("waiting"))["position"] == 1
    taken = await room.admitter.take()
    await seen("entering")
    await room.admitter.confirm(await room.admitter.write(taken))
    assert (await seen("inside"))["left_ms"] == 600_000


@pytest.mark.every_server
async def test_two_rooms_are_watched_concurrently_on_any_kind_of_server(on_any_server: RoomHarness):
    """In a cluster each room lives somewhere else."""
    harness = on_any_server
    watching, seen = WatcherRegistry(harness.valkey, most=9), asyncio.Queue[tuple[str, int | None]]()
    rooms = [await harness.open(capacity=0)]
    await harness.rooms.create("other", RoomPlan(capacity=0))
    rooms.append(await harness.rooms.open("other"))
    watchers: list[Onlooker] = []
    for room in rooms:
        first, _ = await add_visitors(room, "first", "second")
        watchers.append(Onlooker("second", room.name, first, seen))
        watching.join(room, watchers[-1])

    with capture_logs() as lines:
        async with patience():
            assert {await seen.get(), await seen.get()} == {(ROOM, 1), ("other", 1)}
            for room, watcher in zip(rooms, watchers, strict=True):
                await room.leave(watcher.ahead)
                while (found := await seen.get())[1]:
                    pass
                assert found == (room.name, 0)
    assert [line for line in lines if line["event"] == "room.read_failed"] == []

    for room, watcher in zip(rooms, watchers, strict=True):
        await watching.leave(room, watcher)


@dataclass(eq=False)
class Onlooker:
    """Records the number of visitors ahead."""

    user: str
    room: str
    ahead: str
    seen: asyncio.Queue[tuple[str, int | None]]

    def show(self, standing: Standing, view: LineView, pace: Pace | None) -> None:
        del view, pace
        assert isinstance(standing, InLine)
        self.seen.put_nowait((self.room, standing.ahead))


@pytest.mark.full
async def test_many_visitors_watching_at_two_processes_see_their_positions_fall_until_admitted(harness: RoomHarness):
    people, waves = 80, 4
    room = await harness.open(capacity=0)
    async with served(harness.rooms) as here, served(another(harness)) as there:
        tokens = [(await room.join(f"user-{n}")).token or "" for n in range(people)]
        streams = [places((here, there)[n % 2], token) for n, token in enumerate(tokens)]
        seen = [[await next_place(stream)] for stream in streams]
        assert [each[0]["position"] for each in seen] == list(range(1, people + 1))

        async def watch_on(n: int) -> None:
            async for event in streams[n]:
                seen[n].append(event.data)

        async with patience(), asyncio.TaskGroup() as group:
            watching = [group.create_task(watch_on(n)) for n in range(people)]
            for wave in range(1, waves + 1):
                await another(harness).change_plan(ROOM, {"capacity": wave * people // waves})
                await harness.run_worker()
                await asyncio.gather(*watching[(wave - 1) * people // waves : wave * people // waves])
                assert not any(task.done() for task in watching[wave * people // waves :])

    for each in seen:
        positions = [place["position"] for place in each if place["state"] == "waiting"]
        assert positions == sorted(positions, reverse=True), "never up"
        assert each[-1]["state"] == "inside"
        assert sum(place["state"] == "inside" for place in each) == 1
    assert sum(len(each) for each in seen) > people * 2, "those behind saw the others go in"


async def someone_goes(client: Client, stream: AsyncIterator[Event], token: str) -> None:
    """When this has been seen nobody has a reason to look any more: what begins a stream is over."""
    await client.ask("DELETE", f"/v1/rooms/{ROOM}/place", **showing(token))
    while (await next_place(stream))["waiting"] != 1:
        pass


async def test_at_the_start_all_visitors_get_a_position_without_another_change(client: Client, harness: RoomHarness):
    start = timedelta(milliseconds=1200)
    await harness.rooms.create(ROOM, RoomPlan(capacity=0))
    await harness.rooms.open(ROOM, harness.clock.now() + start)
    ada, bob = [(await bring(client, user))["pass"] for user in ("ada", "bob")]
    stream = places(client, ada)

    before = await next_place(stream)
    await someone_goes(client, stream, bob)
    harness.clock.advance(start)
    after = await next_place(stream)

    assert (before["state"], before["position"], before["opens_in_ms"]) == ("drawing", None, 1200)
    assert (after["state"], after["position"], after["opens_in_ms"]) == ("waiting", 1, 0)


async def test_a_postponed_start_is_sent_to_watching_visitors(client: Client, harness: RoomHarness):
    await harness.rooms.create(ROOM, RoomPlan(capacity=0))
    await harness.rooms.open(ROOM, harness.clock.now() + timedelta(minutes=1))
    ada, bob = [(await bring(client, user))["pass"] for user in ("ada", "bob")]
    stream = places(client, ada)
    await next_place(stream)
    await someone_goes(client, stream, bob)

    await another(harness).open(ROOM, harness.clock.now() + timedelta(minutes=2))

    assert (await next_place(stream))["opens_in_ms"] == 120_000


async def test_a_watching_visitor_always_has_a_valid_pass(client: Client, harness: RoomHarness):
    await harness.open(capacity=0, abandon_after=timedelta(seconds=30))
    ada, bob, cem = [(await bring(client, user))["pass"] for user in ("ada", "bob", "cem")]
    stream = places(client, cem)
    assert (await next_place(stream))["pass"] is None, "the one that was shown is new"

    harness.clock.advance(timedelta(seconds=14))
    await client.ask("DELETE", f"/v1/rooms/{ROOM}/place", **showing(bob))
    early = await next_place(stream)
    harness.clock.advance(timedelta(seconds=2))
    await client.ask("DELETE", f"/v1/rooms/{ROOM}/place", **showing(ada))
    late = await next_place(stream)

    assert early["pass"] is None
    harness.clock.advance(timedelta(seconds=20))
    assert (await client.get(f"/v1/rooms/{ROOM}/place", **showing(cem))).problem == "pass-refused"
    assert (await client.get(f"/v1/rooms/{ROOM}/place", **showing(late["pass"]))).json["position"] == 1


async def test_a_watching_visitor_is_never_removed_and_one_who_disconnected_is(client: Client, harness: RoomHarness):
    """The process that holds the connection renews the place in real time. The clock of the room moves only after a
    renewal, so a slow process is not taken for one that stopped."""
    room = await harness.open(capacity=0, abandon_after=timedelta(seconds=1))
    stays, goes = [places(client, (await bring(client, user))["pass"]) for user in ("ada", "bob")]
    assert [(await next_place(each))["position"] for each in (stays, goes)] == [1, 2]
    await goes.aclose()

    async def pass_a_second() -> None:
        before = await harness.valkey.execute("GET", room.line.keys["seen"])
        harness.clock.advance(timedelta(seconds=1))
        await until(lambda: _has_changed(harness.valkey, room.line.keys["seen"], before))
        await harness.run_worker()

    async with patience():
        while (await room.counts()).waiting > 1:
            await pass_a_second()
    assert await line(room, harness.valkey) == ["ada"], "to look would be a sign of life"
    for _ in range(4):
        await pass_a_second()
    assert await line(room, harness.valkey) == ["ada"], "watched for longer than abandon_after"


async def _has_changed(valkey: Valkey, key: str, before: bytes) -> bool:
    return await valkey.execute("GET", key) != before


async def test_a_stream_survives_a_server_outage_and_passes_are_checked_meanwhile(tmp_path: Path, clock: ManualClock):
    url = await migrated_file(tmp_path / "wire.db")
    [port] = free_ports(1)
    with ValkeyServer(port=port):
        async with (
            Proxy(port) as wire,
            connected(f"redis://127.0.0.1:{port}") as valkey,
            connected(f"redis://127.0.0.1:{wire.port}") as cut,
            harness_at(url, valkey, clock) as harness,
            served(another(harness, cut)) as client,
        ):
            room = await harness.open(capacity=1)
            inside, ada, bob = await add_visitors(room, "inside", "ada", "bob")
            await harness.run_worker()
            within = (await room.status(inside)).token or ""
            stream = places(client, bob)
            assert (await next_place(stream))["position"] == 2

            await wire.refuse()
            refused = await client.post(f"/v1/rooms/{ROOM}/entries", {"user": "cem"})
            passed = await client.post(f"/v1/rooms/{ROOM}/check", **showing(within))
            waits = await client.post(f"/v1/rooms/{ROOM}/check", **showing(ada))
            await room.leave(ada)
            coming = asyncio.create_task(next_place(places(client, bob)))  # begins during the outage
            await wire.listen()
            behind = [await next_place(stream), await coming]

    assert (refused.status, refused.problem, refused.headers["retry-after"]) == (503, "unavailable", "5")
    assert (passed.status, passed.json["user"]) == (200, "inside"), "the database knows who is inside"
    assert waits.problem == "not-active"
    assert [place["position"] for place in behind] == [1, 1]


class Seeing:
    """A visitor that counts how often it was shown its place."""

    def __init__(self, user: str) -> None:
        self.user, self.times = user, 0

    def show(self, standing: Standing, view: LineView, pace: Pace | None) -> None:
        self.times += 1


@pytest.mark.usefixtures("logged")
async def test_the_return_of_the_server_is_logged_when_visitors_see_their_places_again(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outage, "_STALE_S", 3600.0)  # a part that does not report its return holds the line back
    url = await migrated_file(tmp_path / "wire.db")
    with ValkeyServer() as server:
        async with connected(server.url) as valkey, harness_at(url, valkey, clock) as harness:
            room = await harness.open(capacity=0)
            await add_visitors(room, "ada")
            watching, watcher = WatcherRegistry(valkey, most=1), Seeing("ada")
            with capture_logs() as lines:
                watching.join(room, watcher)
                await until(lambda: watcher.times)
                with refusing(server):
                    await until(lambda: lines_of_outage(lines))
                await until(lambda: "server.back" in lines_of_outage(lines))
            await watching.leave(room, watcher)

    assert len(lines_of_outage(lines)) <= 3


async def test_a_visitor_who_could_not_send_heartbeats_during_an_outage_keeps_the_place(harness: RoomHarness):
    room = await harness.open(capacity=0, abandon_after=timedelta(minutes=2))
    await add_visitors(room, "ada", "bob")
    harness.clock.advance(timedelta(minutes=5))
    await harness.valkey.execute("HSET", room.line.keys["book"], "run", "the one before")  # it was started again
    harness.worker.begin()

    await harness.run_worker()
    assert (await room.counts()).waiting == 2
    harness.clock.advance(timedelta(minutes=1))
    await room.standings(["ada"])
    harness.clock.advance(timedelta(minutes=1, seconds=1))
    await harness.run_worker()

    assert (await room.standings(["ada", "bob"])).standings == [InLine(place=1, ahead=0), NotPresent()]


async def test_beyond_the_limit_of_streams_visitors_are_told_to_retry_later(harness: RoomHarness):
    room = await harness.open(capacity=0)
    tokens = [(await room.join(user)).token or "" for user in ("ada", "bob")]
    async with served(harness.rooms, HttpSettings(most_watchers=1)) as client:
        stream = places(client, tokens[0])
        await next_place(stream)

        refused = await client.get(EVENTS, **showing(tokens[1]))
        await stream.aclose()

        assert (refused.status, refused.problem, "retry-after" in refused.headers) == (503, "too-many", True)


async def test_an_invalid_pass_is_refused_before_a_stream_starts(client: Client, harness: RoomHarness):
    await harness.open(capacity=0)
    assert (await client.get(EVENTS)).problem == "pass-refused"
    assert (await client.get(EVENTS, **showing("x.y"))).problem == "pass-refused"
    token = (await bring(client, "ada"))["pass"]
    head = await client.ask("HEAD", EVENTS, **showing(token))
    assert (head.status, head.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")


async def test_the_stream_of_an_unknown_visitor_ends_with_a_notice(client: Client, harness: RoomHarness):
    await harness.open(capacity=0)
    token = (await bring(client, "ada"))["pass"]
    await client.ask("DELETE", f"/v1/rooms/{ROOM}/place", **showing(token))

    [only] = await watched(client, token)

    assert (only.id, only.data["state"], only.data["pass"]) == ("ended", "nowhere", None)


async def test_when_the_process_stops_every_stream_ends(harness: RoomHarness):
    room = await harness.open(capacity=0)
    token = (await room.join("ada")).token or ""
    async with served(harness.rooms) as client, patience():
        stream = places(client, token)
        await next_place(stream)
        client.stop()
        assert [event async for event in stream] == [], "it ends, and says nothing more"


async def test_an_http_1_0_client_gets_the_same_events_by_the_regular_route(client: Client, harness: RoomHarness):
    """A client of HTTP/1.0 cannot be written to directly; what it is sent is no other."""
    await harness.open(capacity=0)
    token = (await bring(client, "ada"))["pass"]
    usual = await next_place(places(client, token))
    address = urlsplit(client.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"GET {EVENTS} HTTP/1.0\r\nHost: {address.netloc}\r\n{HEADER}: {token}\r\n\r\n".encode())

    async with patience():
        while not (line := await reader.readline()).startswith(b"data: "):
            assert line
        writer.close()

    assert msgspec.json.decode(line[6:]) == usual


@dataclass
class Connection:
    """Takes what it is given, or nothing."""

    stream: PlaceStream
    is_backlogged: bool = True
    sent: list[bytes] = field(default_factory=list[bytes])

    def offer(self) -> None:
        if not self.is_backlogged and (latest := self.stream.take()) is not None:
            self.sent.append(latest)


async def test_a_slow_reader_gets_only_the_latest_event_and_no_pass_is_lost(harness: RoomHarness):
    room = await harness.open(capacity=0, abandon_after=timedelta(seconds=30))
    shown = room.read((await room.join("ada")).token or "")
    stream = PlaceStream(room, shown)
    slow = Connection(stream)
    stream.begin(slow.offer)

    for ahead in range(50, 0, -1):
        if ahead == 25:
            harness.clock.advance(timedelta(seconds=20))  # a new pass is due here, in the middle of what is left out
        stream.show(InLine(place=1, ahead=ahead), LineView(100, 0, []), None)
    slow.is_backlogged = False
    slow.offer()
    slow.offer()

    [only] = slow.sent
    place = msgspec.json.decode(only.partition(b"data: ")[2])
    assert place["position"] == 2
    assert room.read(place["pass"]).user == "ada"
    stream.show(InLine(place=1, ahead=1), LineView(100, 0, []), None)
    assert len(slow.sent) == 1, "nothing changed"
    stream.end()


async def test_with_any_events_and_any_reading_speed_the_last_event_arrives_and_no_pass_is_lost(harness: RoomHarness):
    """Any order of moves, stops and starts; with a fixed beginning, so that what fails once fails again."""
    room = await harness.open(capacity=0, abandon_after=timedelta(seconds=30))
    token = (await room.join("ada")).token or ""
    for seed in range(60):
        draw = random.Random(seed)
        stream = PlaceStream(room, room.read((await room.join("ada")).token or token))
        connection = Connection(stream, is_backlogged=False)
        stream.begin(connection.offer)
        ahead = 99
        for _ in range(30):
            ahead -= draw.randrange(3)
            connection.is_backlogged = draw.random() < 0.5
            harness.clock.advance(timedelta(seconds=draw.choice((0, 1, 9))))
            stream.show(InLine(place=1, ahead=ahead), LineView(100, 0, []), None)
            if draw.random() < 0.2:
                stream.beat()
            connection.offer()
        stream.show(Inside(7, 600_000), LineView(100, 0, []), None)
        stream.show(NotPresent(), LineView(100, 0, []), None)
        connection.is_backlogged = False
        connection.offer()

        events = [sent for sent in connection.sent if not sent.startswith(b":")]
        shown = [msgspec.json.decode(event.partition(b"data: ")[2]) for event in events]
        positions = [place["position"] for place in shown[:-1]]
        assert positions == sorted(positions, reverse=True)
        assert (events[-1].startswith(b"id: ended\n"), shown[-1]["state"]) == (True, "inside"), "and nothing after it"
        assert room.read(shown[-1]["pass"]).kind == "inside"
        assert stream.ended.done()


async def test_a_client_that_does_not_read_uses_little_memory_and_gets_the_latest_event_when_it_does(
    harness: RoomHarness,
):
    room = await harness.open(capacity=0)
    await room.join("bob")  # so that the real position, which the follower may show at any moment, is the last one too
    token = (await room.join("ada")).token or ""
    http, streams = HttpSettings(port=0), PlaceStreams(harness.valkey, most=5)
    places = PlaceRoutes(harness.rooms, AdmissionRates(), partial(PlaceEvents, streams))
    stopping, moves = asyncio.Event(), 60_000
    loop, received = asyncio.get_running_loop(), b""
    with Binding(http) as binding, socket.socket() as client:
        application = build_application(places.routes(), http)
        serving = asyncio.create_task(HttpService(application, binding, on_stop=streams.close).run(stopping))
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", binding.port))
        request = f"GET {EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\n{HEADER}: {token}\r\n\r\n"
        await loop.sock_sendall(client, request.encode())
        [(stream, wire)] = await _opened(streams)
        for ahead in range(moves, 0, -1):
            stream.show(InLine(place=1, ahead=ahead), LineView(moves, 0, []), None)
        kept = wire.transport.get_write_buffer_size()
        async with patience():
            while b'"position":2,' not in received.partition(b'"position":60001,')[2]:
                received += await loop.sock_recv(client, 2**20)
        stopping.set()
        await serving
    assert 0 < kept < 20_000, "a few events, whatever was shown"
    assert received.count(b"event: place") < moves / 2


async def _opened(streams: PlaceStreams) -> list[tuple[PlaceStream, Any]]:
    """Those that somebody watches, when somebody does."""
    async with patience():
        while not (found := [each for each in streams.streams.items() if each[0].is_begun]):
            await look_again()
    return found


async def test_one_user_cannot_occupy_all_stream_slots(harness: RoomHarness):
    room = await harness.open(capacity=0)
    shown = room.read((await room.join("ada")).token or "")
    watching, windows = WatcherRegistry(harness.valkey, most=100), [PlaceStream(room, shown) for _ in range(7)]
    for each in windows[:6]:
        watching.join(room, each)

    with pytest.raises(TooManyWaiting):
        watching.join(room, windows[6])
    await watching.leave(room, windows[0])
    watching.join(room, windows[6])

    for each in windows[1:]:
        await watching.leave(room, each)
        each.end()
    assert len(watching) == 0


async def test_a_room_without_watching_visitors_is_not_read(harness: RoomHarness):
    room = await harness.open(capacity=0)
    shown = room.read((await room.join("ada")).token or "")
    watching, stream = WatcherRegistry(harness.valkey, most=5), PlaceStream(room, shown)
    before = asyncio.all_tasks()

    watching.join(room, stream)
    assert len(watching) == 1
    await watching.leave(room, stream)

    assert len(watching) == 0
    assert asyncio.all_tasks() == before
    stream.end()
