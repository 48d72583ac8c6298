"""The bulletin: whoever watches a run is woken by every tell, with one reader for a process, and none while idle."""

import asyncio
import dataclasses
from collections.abc import Collection
from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec
import pytest

from tests.primitives.wakeup.waiters import until_blocked
from tests.servers.proxy import Proxy
from tests.servers.valkey import ValkeyServer, free_ports, leftover_keys
from tests.waiting import look_again, patience, simulated_delay, stopwatch
from tidegate.core.errors import InvalidArgument
from tidegate.engine.change_feed import ChangeFeed, Watch
from tidegate.storage.valkey import Unit, Valkey
from tidegate.storage.valkey.connection import connected


@pytest.fixture
def unit(valkey: Valkey) -> Unit:
    return valkey.unit("board")


@pytest.fixture
def bulletin(valkey: Valkey, unit: Unit) -> ChangeFeed:
    return ChangeFeed(valkey, unit)


async def until_reading(valkey: Valkey, readers: int) -> None:
    """Until so many connections block on the server."""
    await until_blocked(valkey, valkey.unit("board").key("bulletin"), readers)


async def calm(watch: Watch) -> None:
    """Take the wake-up that everybody gets when the reader finds its place, which it has."""
    await watch.news(0.01)


async def test_a_tell_wakes_those_who_watch_the_run_and_nobody_else(bulletin: ChangeFeed, valkey: Valkey):
    async with bulletin.watch([1]) as one, bulletin.watch([2]) as two, bulletin.watch([1, 2]) as both:
        await until_reading(valkey, 1)
        for watch in (one, two, both):
            await calm(watch)

        await bulletin.tell([1, 1])

        assert await one.news(60)
        assert await both.news(60)
        assert not await two.news(0.05)


async def test_many_tells_to_one_who_is_busy_are_one_reason_to_look(bulletin: ChangeFeed, valkey: Valkey):
    async with bulletin.watch([1]) as watch, bulletin.watch([2]) as last:
        await until_reading(valkey, 1)
        await calm(watch)
        await calm(last)
        for _ in range(20):
            await bulletin.tell([1])
        await bulletin.tell([2])
        assert await last.news(60)

        assert await watch.news(60)
        assert not await watch.news(0.05)


async def test_another_process_is_heard(bulletin: ChangeFeed, valkey: Valkey, unit: Unit):
    """Another object on another connection is all that another process is to the server."""
    other = await Valkey.connect(valkey.url)
    try:
        async with bulletin.watch([7]) as watch:
            await until_reading(valkey, 1)
            await calm(watch)
            await ChangeFeed(other, unit).tell([7])
            assert await watch.news(60)
    finally:
        await other.close()


@pytest.mark.every_server
async def test_what_is_told_between_the_watchers_look_and_the_readers_first_read_is_not_lost(
    bulletin: ChangeFeed, valkey: Valkey, unit: Unit
):
    await bulletin.tell([1])
    async with bulletin.watch([1]) as watch:
        await bulletin.tell([1])  # the reader has not begun yet
        assert await watch.news(60)


async def test_fifty_watchers_have_one_reader_and_when_they_are_gone_none(bulletin: ChangeFeed, valkey: Valkey):
    async with AsyncExitStack() as stack:
        watches = [await stack.enter_async_context(bulletin.watch([n % 5])) for n in range(50)]
        await until_reading(valkey, 1)
        await asyncio.gather(*map(calm, watches))
        await bulletin.tell(range(5))
        assert all(await asyncio.gather(*(watch.news(60) for watch in watches)))
        await until_reading(valkey, 1)

    assert not bulletin.is_reading
    await until_reading(valkey, 0)


async def test_who_comes_while_the_last_one_leaves_is_served(bulletin: ChangeFeed, valkey: Valkey):
    for n in range(30):
        async with bulletin.watch([n]) as watch:
            await bulletin.tell([n])
            assert await watch.news(60), n
    await until_reading(valkey, 0)


async def test_who_leaves_at_any_moment_leaves_at_once(embedded: Valkey):
    """Also in the moment in which the reader's first command is on its way: its cancellation must not get lost."""
    bulletin = ChangeFeed(embedded, embedded.unit("board"))
    async with patience():
        for n in range(400):
            async with bulletin.watch([1]):
                await simulated_delay(n % 8 * 0.0002)


async def test_a_watcher_that_is_cancelled_leaves_nothing_behind(bulletin: ChangeFeed, valkey: Valkey):
    async def watch_for_ever() -> None:
        async with bulletin.watch([1]) as watch:
            while True:
                await watch.news(60)

    task = asyncio.create_task(watch_for_ever())
    await until_reading(valkey, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert not bulletin.is_reading
    await until_reading(valkey, 0)


@pytest.mark.full
@pytest.mark.every_server
async def test_the_stream_stays_short(bulletin: ChangeFeed, valkey: Valkey, unit: Unit):
    for _ in range(1_500):
        await bulletin.tell([1])

    assert await valkey.execute("XLEN", unit.key("bulletin")) < 1_200
    assert (await leftover_keys(valkey, unit)).keys() == {"bulletin"}


@pytest.mark.every_server
async def test_whoever_says_often_that_runs_moved_tells_it_together(bulletin: ChangeFeed, valkey: Valkey, unit: Unit):
    async with bulletin.watch([150]) as watch:
        await until_reading(valkey, 1)
        await calm(watch)
        elapsed_s = stopwatch()
        for n in range(300):
            bulletin.moved([n])
            await valkey.execute("EXISTS", unit.key("bulletin"))  # whoever tells has its turn
        assert await watch.news(60)
        await bulletin.close()

    told = await valkey.execute("XLEN", unit.key("bulletin"))
    assert told <= 2 + elapsed_s() * 20


@pytest.mark.every_server
async def test_what_moved_last_is_told_before_the_end(bulletin: ChangeFeed, valkey: Valkey, unit: Unit):
    bulletin.moved([1])
    bulletin.moved([2])
    await bulletin.close()

    entries = await valkey.execute("XRANGE", unit.key("bulletin"), "-", "+")
    assert [msgspec.msgpack.decode(fields[b"runs"]) for _, fields in entries] == [[1, 2]]


async def test_where_blocking_is_forbidden_it_looks_now_and_then(valkey: Valkey, unit: Unit):
    other = await Valkey.connect(valkey.url)
    other._info = dataclasses.replace(other.info, can_block=False)  # pyright: ignore[reportPrivateUsage]
    try:
        async with ChangeFeed(other, unit).watch([3]) as watch:
            await ChangeFeed(valkey, unit).tell([3])
            assert await watch.news(60)
            await until_reading(valkey, 0)
    finally:
        await other.close()


async def test_a_server_that_lost_its_data_is_followed_from_its_new_beginning(embedded: Valkey):
    bulletin = ChangeFeed(embedded, embedded.unit("board"))
    async with bulletin.watch([1]) as watch:
        await bulletin.tell([1])
        await until_reading(embedded, 1)
        await calm(watch)
        await embedded.execute("FLUSHALL")
        await bulletin.tell([1])
        assert await watch.news(60)


async def test_after_a_broken_connection_everybody_looks_again():
    """Also those whose run moved while nobody could be told."""
    [port] = free_ports(1)
    with ValkeyServer(port=port) as server:
        async with (
            Proxy(port) as proxy,
            connected(server.url) as direct,
            connected(f"redis://127.0.0.1:{proxy.port}") as through,
        ):
            bulletin = ChangeFeed(through, through.unit("board"))
            async with bulletin.watch([1]) as watch:
                await until_reading(direct, 1)
                await calm(watch)
                await proxy.refuse()
                await bulletin.tell([1])  # in vain, and harmless
                await proxy.listen()
                assert await watch.news(20)


async def test_nonsense_is_refused(embedded: Valkey):
    bulletin = ChangeFeed(embedded, embedded.unit("board"))
    with pytest.raises(InvalidArgument, match="nothing to watch"):
        async with bulletin.watch([]):
            pass
    with pytest.raises(InvalidArgument):
        await Watch().news(0)
    await bulletin.tell([])
    assert await leftover_keys(embedded, embedded.unit("board")) == {}


async def test_one_who_follows_with_a_gap_is_told_of_many_moves_together_and_keeps_nobody_waiting(
    bulletin: ChangeFeed, valkey: Valkey
):
    heard: list[Collection[int] | None] = []
    async with bulletin.follow(heard.append, gap=timedelta(minutes=1)):
        await until_reading(valkey, 1)
        await bulletin.tell([1])
        async with patience():
            while [1] not in [sorted(each or ()) for each in heard]:
                await look_again()
        for run in range(2, 20):
            await bulletin.tell([run])
        assert len(heard) == 2, "its beginning, and the first move; the others can wait a minute"

        async with bulletin.watch([50]) as watch:  # who watches something cannot
            await bulletin.tell([50])
            assert await watch.news(60)
            assert set().union(*(each or () for each in heard)) >= {*range(1, 20)}
            await bulletin.tell([50])
            assert await watch.news(60), "also not a second time"
