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
from tidegate.core.telemetry import metrics
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


async def test_a_message_is_deleted_only_after_its_schedule_has_fired(
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


async def test_one_that_comes_twice_has_the_same_key_both_times(
    queue: Queue, sqs: SqsServer, url: str, clockwork: Clockwork
):
    sqs.put(url, plain(7, "k"), plain(8, "k"), plain(7, "k"))
    async with running(queue, clockwork.trigger):
        await clockwork.until(3)
    assert sorted(clockwork.fired) == [(7, "k"), (7, "k"), (8, "k")]


async def test_what_cannot_fire_is_deleted_told_and_counted_and_holds_up_nobody(
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


async def test_while_the_database_is_away_a_message_stays_in_hand_and_costs_no_receive(
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


async def test_what_a_process_had_in_hand_when_it_died_is_shown_to_another(
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


async def test_a_defect_of_ours_is_tried_again_and_given_up_at_last(
    queue: Queue, sqs: SqsServer, url: str, clockwork: Clockwork
):
    before = outcomes()
    clockwork.troubles = [RuntimeError("a defect")] * 2
    sqs.put(url, plain(7, "k"))
    async with running(queue, clockwork.trigger, attempts=2):
        await until_empty(sqs, url)
    assert (clockwork.tries, clockwork.fired) == (2, [])
    assert since(before) == {"failed": 1, "given_up": 1}


async def test_a_queue_that_is_away_is_waited_for(
    distant: Queue, wire: Proxy, sqs: SqsServer, url: str, clockwork: Clockwork
):
    await wire.refuse()
    async with running(distant, clockwork.trigger):
        sqs.put(url, plain(7, "k"))
        await wire.listen()
        await clockwork.until(1)
        await until_empty(sqs, url)


async def test_nonsense_is_refused(queue: Queue, clockwork: Clockwork):
    with pytest.raises(InvalidArgument):
        TriggerInbox(queue, clockwork.trigger, attempts=0)
