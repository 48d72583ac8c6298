"""Server-sent progress: what comes, how it ends, and that nobody leaves anything behind."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from tests.engine.api.test_runs import TIGHT, begin
from tests.http.serving import Client, Served, read_events, served
from tests.waiting import look_again, patience, stopwatch
from tidegate.core.errors import DatabaseUnavailable, NotFound, TooManyWaiting
from tidegate.engine.api.run_details import RunDetail, RunDetailReader
from tidegate.engine.api.runs import RunFeed
from tidegate.engine.change_feed import RunChangeFeed
from tidegate.engine.lifecycle import RunState
from tidegate.http.events import EventStream, ListenerLimit
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey

pytestmark = pytest.mark.asyncio(loop_scope="module")

SSE = {"accept": "text/event-stream"}


async def until(is_so: Callable[[], bool]) -> None:
    async with patience():
        while not is_so():
            await look_again()


def ours() -> set[str]:
    """The tasks that exist for those who listen."""
    names = {task.get_name() for task in asyncio.all_tasks()}
    return {name for name in names if name.startswith(("send events", "client", "follow run", "read changes"))}


async def until_readers(valkey: Valkey, count: int) -> None:
    """Until so many connections read changes, no more and no less."""
    async with patience():
        while (await valkey.execute("CLIENT", "LIST")).count(b" cmd=xread ") != count:
            await look_again()


async def test_the_events_of_a_run_are_streamed_and_the_last_one_is_its_end(deployment: Served):
    client = deployment.client
    run_id = await begin(client, deployment.logins[0])

    events = [event async for event in client.events(f"/v1/runs/{run_id}/events")]

    assert {event.kind for event in events[:-1]} <= {"progress"}
    assert (events[-1].kind, events[-1].id) == ("ended", "ended")
    ended = [event.data["succeeded_jobs"] for event in events]
    assert ended == sorted(ended), "progress goes forward"
    assert len({event.id for event in events}) == len(events)
    assert events[-1].data == (await client.get(f"/v1/runs/{run_id}")).json


async def test_a_run_that_has_ended_is_sent_once(deployment: Served):
    ended = await deployment.collect(deployment.logins[1], include=["USER_BASIC"])

    events = [event async for event in deployment.client.events(f"/v1/runs/{ended['id']}/events")]

    assert [(event.kind, event.data) for event in events] == [("ended", ended)]


async def test_the_route_of_a_run_streams_events_when_the_client_accepts_them(deployment: Served):
    ended = await deployment.collect(deployment.logins[2], include=["USER_BASIC"])

    events = [event async for event in deployment.client.events(f"/v1/runs/{ended['id']}", **SSE)]

    assert [event.kind for event in events] == ["ended"]


@pytest.mark.parametrize("last", ["17", "", "nonsense", "ended-of-another", "9" * 500])
async def test_the_last_event_id_of_a_client_is_ignored(last: str, deployment: Served):
    ended = await deployment.collect(deployment.logins[3], include=["USER_BASIC"])

    path = f"/v1/runs/{ended['id']}/events"
    events = [event async for event in deployment.client.events(path, **{"last-event-id": last})]

    assert [event.kind for event in events] == ["ended"]


async def test_a_client_that_received_the_end_is_told_not_to_reconnect(deployment: Served):
    """Browsers connect again when a stream ends, unless they are answered 204."""
    ended = await deployment.collect(deployment.logins[4], include=["USER_BASIC"])

    answer = await deployment.client.get(f"/v1/runs/{ended['id']}/events", headers={"last-event-id": "ended"})

    assert (answer.status, answer.body) == (204, b"")


async def test_a_head_request_gets_headers_only(deployment: Served):
    ended = await deployment.collect(deployment.logins[5], include=["USER_BASIC"])

    answer = await deployment.client.ask("HEAD", f"/v1/runs/{ended['id']}/events")

    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.full
async def test_fifty_clients_share_one_reader_and_receive_the_same_end(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT) as poor:
        valkey = poor.collection.parts.valkey
        run_id = await begin(poor.client, poor.logins[0])
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            client = Client(session, poor.client.url)
            ends = [asyncio.create_task(client.until_over(run_id)) for _ in range(50)]
            async with patience():
                while b"http_listeners 50.0" not in (await poor.client.get("/metrics")).body:
                    await look_again()
            await until_readers(valkey, 1)

            await poor.client.post(f"/v1/runs/{run_id}/cancel")
            ended = await asyncio.gather(*ends)

        assert {run["status"] for run in ended} == {"canceled"}
        await until(lambda: not poor.collection.change_feed.is_reading)
        assert b"http_listeners 0.0" in (await poor.client.get("/metrics")).body
        await until_readers(valkey, 0)


async def test_a_disconnected_client_is_cleaned_up(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT) as poor:
        run_id = await begin(poor.client, poor.logins[0])
        for _ in range(5):
            async with aiohttp.ClientSession() as session, AsyncExitStack() as stack:
                answer = await stack.enter_async_context(session.get(f"{poor.client.url}/v1/runs/{run_id}/events"))
                await anext(read_events(answer))
                assert ours() == {"send events", "client", f"follow run {run_id}", "read changes"}

            await until(lambda: not poor.collection.change_feed.is_reading)

        await until(lambda: ours() == set())
        await poor.client.post(f"/v1/runs/{run_id}/cancel")


async def test_a_server_stop_ends_streams_without_delay(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT) as poor:
        run_id = await begin(poor.client, poor.logins[0])
        events = poor.client.events(f"/v1/runs/{run_id}/events")
        assert (await anext(events)).kind == "progress"

        poor.stop()
        kinds = [event.kind async for event in events]

        assert "ended" not in kinds, "the stream ends, the run does not"


async def test_clients_beyond_the_limit_are_refused_immediately(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT, http=HttpSettings(most_listeners=2)) as poor:
        run_id = await begin(poor.client, poor.logins[0])
        path = f"/v1/runs/{run_id}/events"
        first, second = poor.client.events(path), poor.client.events(path)
        await anext(first)
        await anext(second)

        third = await poor.client.get(path)

        assert (third.status, third.problem) == (503, "too-many")
        await poor.client.post(f"/v1/runs/{run_id}/cancel")
        assert [event.kind async for event in first][-1] == "ended"
        assert [event.kind async for event in second][-1] == "ended"


class Reading:
    """A run that moves when the test says so."""

    def __init__(self, detail: RunDetail) -> None:
        self.detail, self.reads, self.failing = detail, 0, 0

    async def read(self, run_id: int) -> RunDetail:
        self.reads += 1
        if self.failing:
            self.failing -= 1
            raise DatabaseUnavailable("away")
        if run_id != self.detail.id:
            raise NotFound("run", run_id)
        return self.detail

    def move(self, **changes: Any) -> None:
        self.detail = msgspec.structs.replace(self.detail, **changes)


@pytest_asyncio.fixture(loop_scope="module")
async def reading(deployment: Served) -> Reading:
    ended = await deployment.collect(deployment.logins[6], include=["USER_BASIC"])
    details = RunDetailReader(deployment.collection)
    reading = Reading(await details.detail(ended["id"]))
    reading.move(status=RunState.RUNNING, succeeded_jobs=0)
    return reading


def feed_of(reading: Reading, change_feed: RunChangeFeed, most_listeners: int = 10) -> RunFeed:
    return RunFeed(reading.read, change_feed, ListenerLimit(most_listeners))


async def test_a_slow_client_receives_only_the_latest_state(deployment: Served, reading: Reading):
    change_feed, run_id = deployment.collection.change_feed, reading.detail.id
    feed = feed_of(reading, change_feed)
    async with feed.listen(run_id) as quick, feed.listen(run_id) as slow:
        assert await quick.next(60)
        for jobs in range(1, 4):
            reading.move(succeeded_jobs=jobs)
            await change_feed.tell([run_id])
            assert await quick.next(60)

        latest = await slow.next(60)

        assert latest is not None
        assert b'"succeeded_jobs":3' in latest.body
        assert await slow.next(0.05) is None
        assert reading.reads <= 6, "each move was read once for both"


async def test_a_frequently_changing_run_is_read_at_a_limited_rate(deployment: Served, reading: Reading):
    change_feed, run_id = deployment.collection.change_feed, reading.detail.id
    async with feed_of(reading, change_feed).listen(run_id) as listener:
        await listener.next(60)
        elapsed_s = stopwatch()
        for jobs in range(1, 200):
            reading.move(succeeded_jobs=jobs)
            await change_feed.tell([run_id])
        while (shown := await listener.next(60)) and b'"succeeded_jobs":199' not in shown.body:
            pass
        assert reading.reads <= 3 + elapsed_s() / 0.2


async def test_a_lost_notification_is_compensated_by_a_periodic_read(deployment: Served, reading: Reading):
    """The process that changed the run died before it announced the change."""
    second_net = timedelta(milliseconds=300)
    feed = RunFeed(reading.read, deployment.collection.change_feed, ListenerLimit(1), longest_silence=second_net)
    async with feed.listen(reading.detail.id) as listener:
        assert await listener.next(60)
        await until(lambda: reading.reads == 2)  # the look at a run that has become calm; from then on it waits
        reading.move(succeeded_jobs=1)
        shown = await listener.next(60)
        assert shown is not None
        assert b'"succeeded_jobs":1' in shown.body

        reading.move(status=RunState.COMPLETED)
        shown = await listener.next(60)
        assert shown is not None
        assert shown.is_last


async def test_clients_wait_during_a_database_outage_and_then_continue(deployment: Served, reading: Reading):
    reading.failing = 3
    async with feed_of(reading, deployment.collection.change_feed).listen(reading.detail.id) as listener:
        shown = await listener.next(10)

        assert shown is not None
        assert reading.reads == 4


async def test_a_deleted_run_ends_its_stream(deployment: Served, reading: Reading):
    change_feed, run_id = deployment.collection.change_feed, reading.detail.id
    async with feed_of(reading, change_feed).listen(run_id) as listener:
        assert await listener.next(60)
        reading.move(id=run_id + 1)
        await change_feed.tell([run_id])

        assert await listener.next(60) is None
        assert listener.is_over


async def test_a_reconnect_after_the_end_gets_the_run_again(deployment: Served, reading: Reading):
    change_feed, run_id = deployment.collection.change_feed, reading.detail.id
    feed = feed_of(reading, change_feed)
    reading.move(status=RunState.FAILED)
    async with feed.listen(run_id) as listener:
        shown = await listener.next(60)
        assert shown is not None
        assert shown.is_last
    reading.move(status=RunState.RUNNING)  # its jobs are tried again
    async with feed.listen(run_id) as listener:
        shown = await listener.next(60)
        assert shown is not None
        assert not shown.is_last


async def test_slots_of_disconnected_clients_are_freed(deployment: Served, reading: Reading):
    feed = feed_of(reading, deployment.collection.change_feed, most_listeners=1)
    for _ in range(3):
        async with feed.listen(reading.detail.id):
            with pytest.raises(TooManyWaiting):
                async with feed.listen(reading.detail.id):
                    pass


async def test_idle_streams_send_comments(deployment: Served, reading: Reading):
    feed = feed_of(reading, deployment.collection.change_feed)
    stream = EventStream(feed.listen(reading.detail.id), heartbeat_s=0.05)
    sent, gone = list[bytes](), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if sent.count(b": nothing new\n\n") == 3:
            gone.set()

    async with patience():
        await stream({"type": "http", "method": "GET"}, receive, send)

    assert any(body.startswith(b"id: 1\nevent: progress\ndata: {") for body in sent)
    assert not deployment.collection.change_feed.is_reading
