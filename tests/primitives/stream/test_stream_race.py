"""Several processes on one stream, and what happens when they are killed."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from tests.primitives.processes import kill, output, said, started
from tests.primitives.stream.messages import ids, numbered, numbers
from tests.primitives.stream.worker import SHORT_LEASE_MS
from tests.waiting import patience, until_due
from tidegate.core.clock import ManualClock
from tidegate.primitives.membership import Membership
from tidegate.primitives.stream import Stream, StreamSettings
from tidegate.storage.valkey import Valkey

WORKER = Path(__file__).with_name("worker.py")


async def handled(valkey: Valkey) -> list[int]:
    return [int(n) for n in await valkey.execute("LRANGE", valkey.unit("work").key("handled"), 0, -1)]


@pytest.mark.race
async def test_several_processes_handle_each_message_once(embedded: Valkey):
    stream = Stream(embedded, embedded.unit("work"), "jobs")
    async with AsyncExitStack() as stack:
        ways = [(WORKER, embedded.url, f"w{n}", "drain", "1500") for n in range(3)]
        workers = [await stack.enter_async_context(started(*way)) for way in ways]
        for start in range(0, 1500, 50):
            await stream.add(numbered(range(start, start + 50)))
        await asyncio.gather(*map(output, workers))
    assert sorted(await handled(embedded)) == list(range(1500))
    assert (await stream.status())[:4] == (0, 0, 0, 0)


@pytest.mark.smoke
@pytest.mark.race
async def test_many_readers_in_one_process_share_without_overlap(embedded: Valkey):
    """Beside takeovers of living consumers, sweeps and leaves: everything is acknowledged once in the end."""
    stream = Stream(embedded, embedded.unit("work"), "jobs", StreamSettings(max_deliveries=1_000_000))
    done: Counter[int] = Counter()

    async def work(n: int) -> None:
        consumer = stream.consumer(f"w{n}")
        while done.total() < 400:
            messages = await consumer.read(5, 0.02)
            if len(messages) == 5 and n % 2:
                await consumer.leave()
                continue
            for message in messages:
                done.update(numbers([message]) * await consumer.ack([message.id]))

    async def disturb() -> None:
        while done.total() < 400:
            await stream.take_over(f"w{done.total() % 8}")
            await stream.sweep_idle(timedelta(milliseconds=5))

    await stream.add(numbered(range(400)))
    async with patience():
        await asyncio.gather(*(work(n) for n in range(8)), disturb())
    assert set(done.values()) == {1}
    assert sorted(done) == list(range(400))


@pytest.mark.smoke
@pytest.mark.crash
async def test_messages_of_a_killed_process_are_taken_over_when_its_lease_ends(embedded: Valkey):
    stream, unit = Stream(embedded, embedded.unit("work"), "jobs"), embedded.unit("work")
    membership = Membership(embedded, unit, "survivor")
    await membership.join()
    await stream.add(numbered(range(150)))
    async with started(WORKER, embedded.url, "victim", "hold", "120") as victim:
        assert await said(victim) == "holds 120"
        await kill(victim)

    while not (expiry := await membership.expire()).owners:
        assert expiry.next_in_ms is not None
        assert expiry.next_in_ms <= SHORT_LEASE_MS
        await until_due(expiry.next_in_ms)
    assert expiry.owners == ["victim"]
    assert await stream.take_over("victim") == 120

    survivor = stream.consumer("survivor")
    messages = await survivor.read(1000, 0)
    assert Counter(numbers(messages)) == Counter(range(150))
    assert await survivor.ack(ids(messages)) == 150


async def test_a_dead_process_is_found_ten_seconds_after_its_last_heartbeat(valkey: Valkey, clock: ManualClock):
    """With a repair that follows at once, this keeps the promise of fifteen."""
    unit = valkey.unit("work")
    stream = Stream(valkey, unit, "jobs", clock=clock)
    survivor, victim = Membership(valkey, unit, "survivor", clock), Membership(valkey, unit, "victim", clock)
    await survivor.join()
    await victim.join()
    await stream.add(numbered([1]))
    await stream.consumer("victim").read(1, 0)
    clock.advance(victim.settings.renew_every)
    await victim.renew()
    await survivor.renew()

    expiry, waited_ms = await survivor.expire(), 0
    while not expiry.owners:
        assert expiry.next_in_ms is not None
        clock.advance(timedelta(milliseconds=expiry.next_in_ms))
        waited_ms += expiry.next_in_ms
        expiry = await survivor.expire()
    assert (expiry.owners, waited_ms) == (["victim"], 10_000)
    assert await stream.take_over("victim") == 1
    assert numbers(await stream.consumer("survivor").read(1, 0)) == [1]


@pytest.mark.crash
async def test_a_message_that_kills_every_reader_becomes_a_dead_letter(embedded: Valkey):
    stream = Stream(embedded, embedded.unit("work"), "jobs", StreamSettings(max_deliveries=2))
    await stream.add(numbered([666]))
    for life in range(stream.settings.max_deliveries):
        async with started(WORKER, embedded.url, f"victim-{life}", "hold", "1") as victim:
            assert await said(victim) == "holds 1"
            await kill(victim)
        assert await stream.take_over(f"victim-{life}") == 1
    [letter] = (await stream.dead_letters.page()).letters
    assert numbers([letter]) == [666]
    assert letter.deliveries == stream.settings.max_deliveries
