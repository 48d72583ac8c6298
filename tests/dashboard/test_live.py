"""Topics are told as they change: read once for all who watch, and not at all while nobody does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.engine.api.test_runs import TIGHT, begin
from tests.http.serving import Event, Served, read_events, served
from tests.waiting import PATIENCE_S, look_again, observe_absence, patience, simulated_delay, stopwatch, until
from tidegate.core.errors import DatabaseUnavailable, TooManyWaiting
from tidegate.dashboard import hub as hub_module
from tidegate.dashboard.hub import Hub, SharedRead, Topic
from tidegate.engine.change_feed import RunChangeFeed
from tidegate.http.events import Channel, ChannelState, Listener, ListenerLimit
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON, LATE = timedelta(milliseconds=50), timedelta(minutes=10)


class Reading(msgspec.Struct, kw_only=True):
    """Something that changes when the test says so."""

    at: datetime
    value: int


class Source:
    """Reads it, and counts how often."""

    def __init__(self) -> None:
        self.value, self.reads, self.error = 0, 0, None
        self.error: Exception | None
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def read(self) -> Reading:
        self.reads += 1
        value = self.value
        await self.may_go_on.wait()
        if self.error is not None:
            raise self.error
        return Reading(at=datetime.now(), value=value)  # noqa: DTZ005


def hub_of(
    source: Source, change_feed: RunChangeFeed, *, seats: int = 10, heeds: bool = True, silence: timedelta = LATE
) -> Hub:
    topic = Topic("it", source.read, follows_runs=heeds, gap=SOON, silence=silence)
    return Hub([topic], change_feed, ListenerLimit(seats))


async def shown(listener: Listener, within_s: float = PATIENCE_S) -> int:
    snapshot = await listener.next(within_s)
    assert snapshot is not None
    return msgspec.json.decode(snapshot.body)["value"]


async def test_a_change_of_any_run_is_read_once_for_all_viewers(deployment: Served):
    source, change_feed = Source(), deployment.collection.change_feed
    hub = hub_of(source, change_feed)
    async with AsyncExitStack() as stack:
        listeners = [await stack.enter_async_context(hub.listen(["it"])) for _ in range(10)]
        assert [await shown(listener) for listener in listeners] == [0] * 10
        before = source.reads

        source.value = 1
        await change_feed.tell([4711])

        assert [await shown(listener) for listener in listeners] == [1] * 10
        assert source.reads - before <= 2, "once for the move; and once where it came during a read"
    settled = source.reads
    await change_feed.tell([4711])
    assert not {task.get_name() for task in asyncio.all_tasks()} & {"follow topic it"}
    assert source.reads == settled, "nobody watches, nothing is read"


async def test_a_topic_without_notifications_is_reread_periodically_and_sent_when_changed(deployment: Served):
    source = Source()
    hub = hub_of(source, deployment.collection.change_feed, heeds=False, silence=SOON * 2)
    async with hub.listen(["it"]) as listener:
        assert await shown(listener) == 0
        await until(lambda: source.reads >= 3)
        assert await listener.next(0.01) is None, "only the moment of the look is another"
        source.value = 1
        assert await shown(listener) == 1


async def test_a_slow_client_receives_only_the_latest_state(deployment: Served):
    source, change_feed = Source(), deployment.collection.change_feed
    hub = hub_of(source, change_feed)
    async with hub.listen(["it"]) as quick, hub.listen(["it"]) as slow:
        for value in range(4):
            source.value = value
            await change_feed.tell([1])
            while await shown(quick) != value:
                pass
        assert await shown(slow) == 3
        assert await slow.next(0.01) is None


async def test_a_fast_changing_topic_does_not_starve_other_topics_of_a_slow_client():
    busy, calm = Channel(), Channel()
    listener = Listener([busy, calm], asyncio.Event())
    seen: list[bytes] = []
    calm.show(ChannelState.of(1, b"calm", "calm"))
    for number in range(4):
        busy.show(ChannelState.of(number, b"busy %d" % number, "busy"))
        told = await listener.next(1)
        assert told is not None
        seen.append(told.body)

    assert seen == [b"busy 0", b"calm", b"busy 2", b"busy 3"]


async def test_an_unreadable_topic_is_reported_as_a_problem_until_it_recovers(deployment: Served):
    source = Source()
    hub = hub_of(source, deployment.collection.change_feed, heeds=False, silence=SOON * 2)
    source.error = DatabaseUnavailable("postgres at 10.0.0.7 is away")
    async with hub.listen(["it"]) as listener:
        told = await listener.next(60)
        assert told is not None
        assert told.event.startswith(b"id: it-1\nevent: problem\ndata: {")
        problem = msgspec.json.decode(told.body)
        assert (problem["topic"], problem["status"], problem["type"]) == ("it", 503, "/docs#unavailable")
        assert "10.0.0.7" not in problem["detail"]
        source.error = None
        assert await shown(listener) == 0


async def test_an_unresponsive_server_is_reported_and_recovery_is_shown_soon(
    deployment: Served, monkeypatch: pytest.MonkeyPatch
):
    """However long it hung: that says nothing of what a look costs, and nobody rests for a multiple of it."""
    monkeypatch.setattr(hub_module, "_NEVER_LONGER_S", 0.2)
    monkeypatch.setattr(hub_module, "_AT_MOST", 1000)  # longer than the test, were a hang taken for its cost
    source = Source()
    topic = Topic("it", source.read, gap=SOON, silence=SOON, within=SOON * 2)
    hub = Hub([topic], deployment.collection.change_feed, ListenerLimit(1))
    async with hub.listen(["it"]) as listener:
        assert await shown(listener) == 0
        source.may_go_on.clear()
        told = await listener.next(60)
        assert told is not None
        problem = msgspec.json.decode(told.body)
        assert (told.event.splitlines()[1], problem["status"]) == (b"event: problem", 503)
        await simulated_delay(0.5)
        reads, source.value = source.reads, 1
        source.may_go_on.set()
        while await shown(listener) != 1:
            pass
        assert source.reads - reads <= 2, "nothing piled up meanwhile"


async def test_a_defect_of_one_topic_is_a_problem_and_does_not_end_the_stream(deployment: Served):
    source = Source()
    hub = hub_of(source, deployment.collection.change_feed, heeds=False, silence=SOON * 2)
    source.error = ZeroDivisionError()
    async with hub.listen(["it"]) as listener:
        told = await listener.next(60)
        assert told is not None
        assert msgspec.json.decode(told.body)["status"] == 500
        source.error = None
        assert await shown(listener) == 0


async def test_a_request_is_answered_from_a_read_that_started_after_it_and_reads_are_shared():
    source = Source()
    shared = SharedRead(source.read)
    source.may_go_on.clear()
    first = asyncio.create_task(shared.next())
    await until(lambda: source.reads == 1)

    source.value = 1  # somebody changes it, and asks how it is
    later = [asyncio.create_task(shared.next()) for _ in range(20)]
    await asyncio.sleep(0)
    source.may_go_on.set()

    assert msgspec.json.decode(await first)["value"] == 0
    assert {msgspec.json.decode(body)["value"] for body in await asyncio.gather(*later)} == {1}
    assert source.reads == 2


async def test_a_cancelled_request_does_not_cancel_the_shared_read():
    source = Source()
    shared = SharedRead(source.read)
    source.may_go_on.clear()
    gives_up, stays = asyncio.create_task(shared.next()), asyncio.create_task(shared.next())
    await until(lambda: source.reads == 1)

    gives_up.cancel()
    source.may_go_on.set()

    assert msgspec.json.decode(await stays)["value"] == 0
    assert source.reads == 1


async def test_connection_slots_are_limited_and_freed_on_disconnect(deployment: Served):
    hub = hub_of(Source(), deployment.collection.change_feed, seats=1)
    for _ in range(3):
        async with hub.listen(["it"]):
            with pytest.raises(TooManyWaiting):
                async with hub.listen(["it"]):
                    pass


async def test_closing_ends_all_streams(deployment: Served):
    hub = hub_of(Source(), deployment.collection.change_feed)
    async with hub.listen(["it"]) as listener:
        await listener.next(60)
        waiting = asyncio.create_task(listener.next(60))
        await asyncio.sleep(0)
        hub.close()
        async with patience():
            assert await waiting is None
        assert listener.is_over


async def first_of_each(client_url: str, session: aiohttp.ClientSession, topics: set[str]) -> dict[str, Event]:
    query = "&".join(f"topic={topic}" for topic in sorted(topics))
    found: dict[str, Event] = {}
    async with patience(), session.get(f"{client_url}/v1/live?{query}") as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        async for event in read_events(answer):
            if event.kind:
                found[event.id.rpartition("-")[0]] = event
            if found.keys() == topics:
                break
    return found


async def test_every_topic_equals_the_response_of_its_route(deployment: Served):
    client = deployment.client
    addresses = {
        "overview": "/v1/overview",
        "runtime": "/v1/runtime",
        "quotas": "/v1/quotas",
        "runs": "/v1/runs",
        "rooms": "/v1/rooms",
        "crawl": "/v1/crawl/overview",
        "dead": "/v1/overview/dead",
        "history": "/v1/history",
    }
    events = await first_of_each(client.url, client.session, {*addresses, "snapshots"})

    assert {name: event.kind for name, event in events.items() if event.kind != name} == {
        "snapshots": "problem",  # this installation keeps none
    }
    for name, address in addresses.items():
        assert events[name].data.keys() == (await client.get(address)).json.keys(), name
    assert events["snapshots"].data["status"] == 404


async def overview_in(events: AsyncIterator[Event], is_so: Callable[[Any], bool]) -> Any:
    """The first of which that is so."""
    async with patience():
        while True:
            event = await anext(events)
            if event.kind == "overview" and is_so(event.data):
                return event.data


async def test_the_overview_is_sent_again_when_a_run_changes(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT, users=1, dashboard=True) as poor:
        events = poor.client.events("/v1/live?topic=overview&topic=runs")
        seen: list[Event] = [await anext(events), await anext(events)]
        assert {event.kind for event in seen} == {"overview", "runs"}
        assert all(not event.data.get("active") for event in seen)

        run_id = await begin(poor.client, poor.logins[0])
        told = await overview_in(events, lambda told: bool(told["waits"]))
        assert [run["id"] for run in told["active"]] == [run_id]

        await poor.client.post(f"/v1/runs/{run_id}/cancel")
        told = await overview_in(events, lambda told: not told["active"])
        assert told["runs"]["canceled"] == 1

        poor.stop()
        assert {event.kind async for event in events} <= {"overview", "runs", ""}, "the stream ends"


async def test_an_unknown_topic_is_refused_with_the_known_topics(deployment: Served):
    for path in ("/v1/live", "/v1/live?topic=weather", "/v1/live?topic=overview&topic=", "/v1/live?topics=runs"):
        answer = await deployment.client.get(path)
        assert (answer.status, answer.problem) == (422, "invalid"), path
    assert "overview, runtime" in (await deployment.client.get("/v1/live?topic=weather")).json["detail"]


async def commands_of(valkey: Valkey) -> int:
    info: Any = await valkey.execute("INFO", "stats")
    return int(info["total_commands_processed"])


async def is_idle(valkey: Valkey) -> bool:
    """Whether the server heard nothing for a second but heartbeats, fewer than one a second, and this question."""
    before, elapsed_s = await commands_of(valkey), stopwatch()
    await observe_absence(1)
    return await commands_of(valkey) - before - elapsed_s() <= 2


async def test_without_viewers_nothing_is_read(tmp_path: Path):
    async with served(tmp_path, users=1, dashboard=True, http=HttpSettings(most_listeners=3)) as quiet:
        valkey = quiet.collection.parts.valkey
        async with patience():  # the first reads of a process that begins
            while b" cmd=xread " not in await valkey.execute("CLIENT", "LIST"):
                await look_again()
        await until(lambda: is_idle(valkey))

        streams = [quiet.client.events("/v1/live?topic=runtime") for _ in range(3)]
        for stream in streams:
            await anext(stream)
        assert (await quiet.client.get("/v1/live?topic=runtime")).problem == "too-many"
