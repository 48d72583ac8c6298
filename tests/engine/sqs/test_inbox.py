"""Schedules fire at messages from SQS, which may come twice, late, or from somebody who errs."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.servers.proxy import Proxy
from tests.servers.sqs import SqsServer
from tests.waiting import look_again, patience, stopwatch
from tidegate.core.backoff import Backoff
from tidegate.core.errors import DatabaseUnavailable, InvalidArgument, NotFound
from tidegate.engine import metrics
from tidegate.engine.sqs.inbox import TriggerInbox
from tidegate.engine.sqs.queue import Queue
from tidegate.runtime import outage as outage_policy

Fire = Callable[[int, str], Awaitable[object]]


class Clockwork:
    """Fires, and can be told to fail first."""

    def __init__(self) -> None:
        self.fired: list[tuple[int, str]] = []
        self.tries = 0
        self.troubles: list[Exception] = []
        self.firing, self.may_fire = asyncio.Event(), asyncio.Event()
        self.may_fire.set()

    async def trigger(self, schedule_id: int, firing_key: str) -> str:
        self.tries += 1
        self.firing.set()
        await self.may_fire.wait()
        if self.troubles:
            raise self.troubles.pop(0)
        self.fired.append((schedule_id, firing_key))
        return "a firing"

    async def until(self, count: int) -> None:
        async with patience():
            while len(self.fired) < count:
                await look_again()


@asynccontextmanager
async def running(queue: Queue, fire: Fire, **options: Any) -> AsyncGenerator[None]:
    stopping = asyncio.Event()
    task = asyncio.create_task(TriggerInbox(queue, fire, **options).run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await task


async def until_empty(sqs: SqsServer, url: str) -> None:
    async with patience():
        while sqs.held(url) != (0, 0):
            await look_again()


def outcomes() -> dict[str, float]:
    names = ("fired", "refused", "malformed", "failed", "given_up")
    return {name: metrics.SQS_TRIGGERS.labels(name)._value.get() for name in names}  # pyright: ignore[reportPrivateUsage]


def since(before: dict[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in outcomes().items() if value > before[name]}


def plain(schedule: int, key: str) -> str:
    return json.dumps({"schedule": schedule, "key": key})


@pytest.fixture
def clockwork() -> Clockwork:
    return Clockwork()


async def test_a_message_is_deleted_only_after_its_schedule_was_triggered(
    queue: Queue, sqs: SqsServer, url: str, clockwork: Clockwork
):
    clockwork.may_fire.clear()
    sqs.put(url, json.dumps({"id": "event-1", "detail-type": "clock", "detail": {"schedule": 7}}))
    async with running(queue, clockwork.trigger):
        await clockwork.firing.wait()
        assert sqs.held(url) == (0, 1)
        clockwork.may_fire.set()
        await until_empty(sqs, url)
    assert clockwork.fired == [(7, "event-1")]


async def test_a_redelivered_message_has_the_same_key(queue: Queue, sqs: SqsServer, url: str, clockwork: Clockwork):
    sqs.put(url, plain(7, "k"), plain(8, "k"), plain(7, "k"))
    async with running(queue, clockwork.trigger):
        await clockwork.until(3)
    assert sorted(clockwork.fired) == [(7, "k"), (7, "k"), (8, "k")]


async def test_an_invalid_message_is_deleted_logged_counted_and_delays_no_other(
    queue: Queue, sqs: SqsServer, url: str, clockwork: Clockwork
):
    before = outcomes()
    clockwork.troubles = [NotFound("schedule", 404), InvalidArgument("schedule", 5, "it is paused")]
    sqs.put(url, plain(404, "a"), plain(5, "b"), "no JSON", plain(7, "c"))
    async with running(queue, clockwork.trigger):
        await until_empty(sqs, url)
    assert clockwork.tries == 3
    assert len(clockwork.fired) == 1
    assert since(before) == {"refused": 2, "malformed": 1, "fired": 1}


async def test_during_a_database_outage_a_message_is_held_and_not_received_again(
    queue: Queue, sqs: SqsServer, url: str, clockwork: Clockwork, monkeypatch: pytest.MonkeyPatch
):
    """However long it takes: longer than SQS would hide it."""
    monkeypatch.setattr(
        outage_policy, "OUTAGE_PAUSES", Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=0.1))
    )
    queue.visibility = timedelta(seconds=4)
    elapsed_s = stopwatch()
    receives: list[int] = []

    async def trigger(schedule_id: int, firing_key: str) -> None:
        clockwork.firing.set()
        if elapsed_s() < 5:
            raise DatabaseUnavailable("it is away")
        await clockwork.trigger(schedule_id, firing_key)

    sqs.put(url, plain(7, "k"))
    async with running(queue, trigger):
        await clockwork.firing.wait()
        while not clockwork.fired:
            receives += [message.receives for message in await queue.receive(10, 1)]
        await until_empty(sqs, url)
    assert receives == []
    assert clockwork.fired == [(7, "k")]


async def test_a_message_held_by_a_killed_process_is_delivered_to_another(
    queue: Queue, sqs: SqsServer, url: str, clockwork: Clockwork
):
    clockwork.may_fire.clear()
    sqs.put(url, plain(7, "k"))
    dying = asyncio.create_task(TriggerInbox(queue, clockwork.trigger).run(asyncio.Event()))
    await clockwork.firing.wait()
    dying.cancel()
    await asyncio.wait([dying])

    clockwork.may_fire.set()
    async with running(queue, clockwork.trigger):
        await clockwork.until(1)
        await until_empty(sqs, url)
    assert (clockwork.tries, clockwork.fired) == (2, [(7, "k")])


async def test_an_internal_error_is_retried_and_finally_gives_up(
    queue: Queue, sqs: SqsServer, url: str, clockwork: Clockwork
):
    before = outcomes()
    clockwork.troubles = [RuntimeError("a defect")] * 2
    sqs.put(url, plain(7, "k"))
    async with running(queue, clockwork.trigger, attempts=2):
        await until_empty(sqs, url)
    assert (clockwork.tries, clockwork.fired) == (2, [])
    assert since(before) == {"failed": 1, "given_up": 1}


async def test_an_unavailable_queue_is_waited_for(
    distant: Queue, wire: Proxy, sqs: SqsServer, url: str, clockwork: Clockwork
):
    await wire.refuse()
    async with running(distant, clockwork.trigger):
        sqs.put(url, plain(7, "k"))
        await wire.listen()
        await clockwork.until(1)
        await until_empty(sqs, url)


async def test_invalid_arguments_are_refused(queue: Queue, clockwork: Clockwork):
    with pytest.raises(InvalidArgument):
        TriggerInbox(queue, clockwork.trigger, attempts=0)
