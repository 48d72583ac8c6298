"""Change feed of runs: every change wakes the watchers of its run; one reader per process, none while idle."""

import asyncio
import dataclasses
from collections.abc import Collection
from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec
import pytest

from tests.primitives.wakeup.waiters import until_blocked
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer, leftover_keys
from tests.waiting import look_again, patience, simulated_delay, stopwatch
from tidegate.core.errors import InvalidArgument
from tidegate.engine.change_feed import RunChangeFeed, Watch
from tidegate.storage.valkey import Unit, Valkey
from tidegate.storage.valkey.connection import connected


@pytest.fixture
def unit(valkey: Valkey) -> Unit:
    return valkey.unit("board")


@pytest.fixture
def change_feed(valkey: Valkey, unit: Unit) -> RunChangeFeed:
    return RunChangeFeed(valkey, unit)


async def until_reading(valkey: Valkey, readers: int) -> None:
    """Until so many connections block on the server."""
    await until_blocked(valkey, valkey.unit("board").key("change_feed"), readers)


async def calm(watch: Watch) -> None:
    """Take the wake-up that everybody gets when the reader finds its place, which it has."""
    await watch.wait(0.01)


async def test_a_notification_wakes_only_watchers_of_that_run(change_feed: RunChangeFeed, valkey: Valkey):
    async with change_feed.watch([1]) as one, change_feed.watch([2]) as two, change_feed.watch([1, 2]) as both:
        await until_reading(valkey, 1)
        for watch in (one, two, both):
            await calm(watch)

        await change_feed.tell([1, 1])

        assert await one.wait(60)
        assert await both.wait(60)
        assert not await two.wait(0.05)


async def test_many_notifications_to_a_busy_watcher_cause_one_read(change_feed: RunChangeFeed, valkey: Valkey):
    async with change_feed.watch([1]) as watch, change_feed.watch([2]) as last:
        await until_reading(valkey, 1)
        await calm(watch)
        await calm(last)
        for _ in range(20):
            await change_feed.tell([1])
        await change_feed.tell([2])
        assert await last.wait(60)

        assert await watch.wait(60)
        assert not await watch.wait(0.05)


async def test_notifications_of_other_processes_are_received(change_feed: RunChangeFeed, valkey: Valkey, unit: Unit):
    """Another object on another connection is all that another process is to the server."""
    other = await Valkey.connect(valkey.url)
    try:
        async with change_feed.watch([7]) as watch:
            await until_reading(valkey, 1)
            await calm(watch)
            await RunChangeFeed(other, unit).tell([7])
            assert await watch.wait(60)
    finally:
        await other.close()


@pytest.mark.every_server
async def test_a_notification_between_subscribing_and_the_first_read_is_not_lost(
    change_feed: RunChangeFeed, valkey: Valkey, unit: Unit
):
    await change_feed.tell([1])
    async with change_feed.watch([1]) as watch:
        await change_feed.tell([1])  # the reader has not begun yet
        assert await watch.wait(60)


async def test_fifty_watchers_share_one_reader_which_ends_with_the_last_watcher(
    change_feed: RunChangeFeed, valkey: Valkey
):
    async with AsyncExitStack() as stack:
        watches = [await stack.enter_async_context(change_feed.watch([n % 5])) for n in range(50)]
        await until_reading(valkey, 1)
        await asyncio.gather(*map(calm, watches))
        await change_feed.tell(range(5))
        assert all(await asyncio.gather(*(watch.wait(60) for watch in watches)))
        await until_reading(valkey, 1)

    assert not change_feed.is_reading
    await until_reading(valkey, 0)


async def test_a_watcher_that_joins_while_the_last_one_leaves_is_served(change_feed: RunChangeFeed, valkey: Valkey):
    for n in range(30):
        async with change_feed.watch([n]) as watch:
            await change_feed.tell([n])
            assert await watch.wait(60), n
    await until_reading(valkey, 0)


async def test_a_watcher_can_leave_immediately_at_any_time(embedded: Valkey):
    """Also in the moment in which the reader's first command is on its way: its cancellation must not get lost."""
    change_feed = RunChangeFeed(embedded, embedded.unit("board"))
    async with patience():
        for n in range(400):
            async with change_feed.watch([1]):
                await simulated_delay(n % 8 * 0.0002)


async def test_a_cancelled_watcher_is_cleaned_up(change_feed: RunChangeFeed, valkey: Valkey):
    async def watch_for_ever() -> None:
        async with change_feed.watch([1]) as watch:
            while True:
                await watch.wait(60)

    task = asyncio.create_task(watch_for_ever())
    await until_reading(valkey, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert not change_feed.is_reading
    await until_reading(valkey, 0)


@pytest.mark.full
@pytest.mark.every_server
async def test_the_stream_is_trimmed(change_feed: RunChangeFeed, valkey: Valkey, unit: Unit):
    for _ in range(1_500):
        await change_feed.tell([1])

    assert await valkey.execute("XLEN", unit.key("change_feed")) < 1_200
    assert (await leftover_keys(valkey, unit)).keys() == {"change_feed"}


@pytest.mark.every_server
async def test_frequent_notifications_are_combined(change_feed: RunChangeFeed, valkey: Valkey, unit: Unit):
    async with change_feed.watch([150]) as watch:
        await until_reading(valkey, 1)
        await calm(watch)
        elapsed_s = stopwatch()
        for n in range(300):
            change_feed.moved([n])
            await valkey.execute("EXISTS", unit.key("change_feed"))  # whoever tells has its turn
        assert await watch.wait(60)
        await change_feed.close()

    told = await valkey.execute("XLEN", unit.key("change_feed"))
    assert told <= 2 + elapsed_s() * 20


@pytest.mark.every_server
async def test_pending_notifications_are_sent_before_shutdown(change_feed: RunChangeFeed, valkey: Valkey, unit: Unit):
    change_feed.moved([1])
    change_feed.moved([2])
    await change_feed.close()

    entries = await valkey.execute("XRANGE", unit.key("change_feed"), "-", "+")
    assert [msgspec.msgpack.decode(fields[b"runs"]) for _, fields in entries] == [[1, 2]]


async def test_without_blocking_reads_the_stream_is_read_periodically(valkey: Valkey, unit: Unit):
    other = await Valkey.connect(valkey.url)
    other._info = dataclasses.replace(other.info, can_block=False)  # pyright: ignore[reportPrivateUsage]
    try:
        async with RunChangeFeed(other, unit).watch([3]) as watch:
            await RunChangeFeed(valkey, unit).tell([3])
            assert await watch.wait(60)
            await until_reading(valkey, 0)
    finally:
        await other.close()


async def test_a_server_that_lost_its_data_is_followed_from_the_new_start(embedded: Valkey):
    change_feed = RunChangeFeed(embedded, embedded.unit("board"))
    async with change_feed.watch([1]) as watch:
        await change_feed.tell([1])
        await until_reading(embedded, 1)
        await calm(watch)
        await embedded.execute("FLUSHALL")
        await change_feed.tell([1])
        assert await watch.wait(60)


async def test_after_a_broken_connection_all_watchers_read_again():
    """Also those whose run moved while nobody could be told."""
    [port] = free_ports(1)
    with ValkeyServer(port=port) as server:
        async with (
            Proxy(port) as proxy,
            connected(server.url) as direct,
            connected(f"redis://127.0.0.1:{proxy.port}") as through,
        ):
            change_feed = RunChangeFeed(through, through.unit("board"))
            async with change_feed.watch([1]) as watch:
                await until_reading(direct, 1)
                await calm(watch)
                await proxy.refuse()
                await change_feed.tell([1])  # in vain, and harmless
                await proxy.listen()
                assert await watch.wait(20)


async def test_invalid_arguments_are_refused(embedded: Valkey):
    change_feed = RunChangeFeed(embedded, embedded.unit("board"))
    with pytest.raises(InvalidArgument, match="nothing to watch"):
        async with change_feed.watch([]):
            pass
    with pytest.raises(InvalidArgument):
        await Watch().wait(0)
    await change_feed.tell([])
    assert await leftover_keys(embedded, embedded.unit("board")) == {}


async def test_a_rate_limited_watcher_gets_combined_notifications_and_delays_no_other(
    change_feed: RunChangeFeed, valkey: Valkey
):
    heard: list[Collection[int] | None] = []
    async with change_feed.follow(heard.append, gap=timedelta(minutes=1)):
        await until_reading(valkey, 1)
        await change_feed.tell([1])
        async with patience():
            while [1] not in [sorted(each or ()) for each in heard]:
                await look_again()
        for run in range(2, 20):
            await change_feed.tell([run])
        assert len(heard) == 2, "its beginning, and the first move; the others can wait a minute"

        async with change_feed.watch([50]) as watch:  # who watches something cannot
            await change_feed.tell([50])
            assert await watch.wait(60)
            assert set().union(*(each or () for each in heard)) >= {*range(1, 20)}
            await change_feed.tell([50])
            assert await watch.wait(60), "also not a second time"
