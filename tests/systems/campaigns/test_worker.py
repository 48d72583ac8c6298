"""The manager: consumer pools of this process come and go, by a call, by hand, or because they are quiet."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import WorkerHarness, worker_harness_at
from tests.waiting import observe_absence, patience, random_moment
from tidegate.core.errors import NotFound
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import consumer_pool as consumer_pool_module
from tidegate.systems.campaigns import worker as manager_module
from tidegate.systems.campaigns.consumer_pool import ConsumerPool
from tidegate.systems.campaigns.scripts import process_keys
from tidegate.systems.campaigns.worker import CampaignWorker


@pytest.fixture
async def waiting(tmp_path: Path, embedded: Valkey) -> AsyncGenerator[WorkerHarness]:
    """With readers that wait on the server, and campaigns that are not quiet so soon."""
    async with worker_harness_at(
        await migrated_file(tmp_path / "works.db"), embedded, idle_timeout_seconds=30
    ) as opened:
        yield opened


async def test_starting_and_stopping_twice_is_harmless(workers: WorkerHarness):
    manager = workers.manager("one")
    await workers.open(total=2500)

    await asyncio.gather(manager.start(CAMPAIGN), manager.start(CAMPAIGN))
    await manager.start(CAMPAIGN)
    assert [(pool.campaign, pool.consumers) for pool in manager.pools] == [(CAMPAIGN, 3)]
    assert (await workers.status()).processes == ["one"]

    await asyncio.gather(manager.stop(CAMPAIGN), manager.stop(CAMPAIGN))
    await manager.stop(CAMPAIGN)
    assert manager.pools == []
    assert (await workers.status()).processes == []
    with pytest.raises(NotFound):
        await manager.start("nothing")


async def test_a_manually_started_pool_leaves_when_no_entry_arrives(workers: WorkerHarness):
    manager = workers.manager("one")
    await workers.open()
    await manager.start(CAMPAIGN)
    await workers.until_gone()
    assert manager.pools == []


async def test_a_stop_respects_its_timeout_and_others_do_the_rest(
    workers: WorkerHarness, monkeypatch: pytest.MonkeyPatch
):
    manager = workers.manager("one")
    await workers.open(total=50)
    begun = asyncio.Event()

    async def hangs(*_: object, **__: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(consumer_pool_module, "_FINISH_WITHIN_S", 0.2)
    with monkeypatch.context() as patched:
        await workers.enter(*(f"user-{n}" for n in range(50)))
        patched.setattr(workers.database, "transaction", hangs)
        await manager.start(CAMPAIGN)
        await begun.wait()
        async with patience():
            await manager.stop(CAMPAIGN)
    status = await workers.status()
    assert (status.processes, status.pending, status.lag, status.is_woken) == ([], 0, 50, True)

    await workers.instance("two")
    await workers.until_decided(50)
    assert {letter.deliveries for letter in (await workers.campaigns.dead(CAMPAIGN)).letters} == set()


async def test_a_consumer_pool_that_stops_itself_does_not_wait_for_itself(
    workers: WorkerHarness, monkeypatch: pytest.MonkeyPatch
):
    manager = workers.manager("one")
    await workers.open()
    stopped = asyncio.Event()

    async def stops(_: ConsumerPool) -> float | None:
        async with patience():
            await manager.stop(CAMPAIGN)
        stopped.set()
        return 30.0

    monkeypatch.setattr(manager, "_retire", stops)
    await manager.start(CAMPAIGN)
    async with patience():
        await stopped.wait()
    await workers.until_gone()
    assert manager.pools == []


async def test_a_message_that_arrives_while_a_consumer_pool_leaves_is_processed(tmp_path: Path, embedded: Valkey):
    url = await migrated_file(tmp_path / "works.db")
    # A server ends a read that waits up to 100 ms late; one that looks is quiet when it should be.
    async with worker_harness_at(url, embedded, idle_timeout_seconds=0.004, blocking=False) as workers:
        await workers.open(total=1000)
        await workers.instance("one")
        await workers.instance("two")
        for n in range(80):
            await workers.enter(f"user-{n}")
            await random_moment(0.012)
        await workers.until_decided(80)
        await workers.until_gone()


async def test_a_wake_up_taken_by_a_process_whose_pool_is_leaving_is_answered(
    workers: WorkerHarness, monkeypatch: pytest.MonkeyPatch
):
    one = await workers.instance("one")
    leave, has_left = one.manager._leave, asyncio.Event()  # pyright: ignore[reportPrivateUsage]
    taken = process_keys(workers.valkey, "one")["taken"]

    async def is_taken() -> bool:
        return await workers.valkey.execute("LLEN", taken) == 1

    async def leave_and_meet_somebody(campaign: str, *, idle_ms: int) -> float | None:
        wait_s = await leave(campaign, idle_ms=idle_ms)
        if wait_s is None and not has_left.is_set():
            has_left.set()
            await workers.enter("bob")
            await workers.until(is_taken)
        return wait_s

    monkeypatch.setattr(one.manager, "_leave", leave_and_meet_somebody)
    await workers.open()
    await workers.enter("ann")
    await has_left.wait()
    await workers.until_decided(2)


async def test_wake_ups_are_distributed_among_the_instances(waiting: WorkerHarness):
    instances = [await waiting.instance(name) for name in ("one", "two", "three")]
    for n in range(6):
        await waiting.open(f"c-{n}")
        await waiting.until(partial(_are_waiting, waiting, 3 + n))  # for calls, and for messages of those before
        await waiting.enter("ann", campaign=f"c-{n}")
        await waiting.until_decided(1, f"c-{n}")
    assert [len(each.manager.pools) for each in instances] == [2, 2, 2]


async def test_an_idle_campaign_costs_no_task_and_no_command(waiting: WorkerHarness):
    before = len(asyncio.all_tasks())
    for n in range(50):
        await waiting.open(f"c-{n}")
    await waiting.instance("one")
    await waiting.enter("ann", campaign="c-7")
    await waiting.until_decided(1, "c-7")
    await waiting.instances[0].manager.stop("c-7")
    await waiting.until(partial(_are_waiting, waiting, 1))

    count = await _commands(waiting)
    await observe_absence()
    assert await _commands(waiting) == count + 1, "the question itself"
    assert len(asyncio.all_tasks()) <= before + 3, "it waits for a call, and to be told to stop"


async def test_a_wake_up_for_an_unknown_campaign_is_declined(workers: WorkerHarness):
    await workers.open()
    keys = workers.keys()
    await workers.valkey.execute("LPUSH", keys["wakeups"], "gone")
    await workers.valkey.execute("SADD", keys["woken"], "gone", "gone-too")
    await workers.valkey.execute("LPUSH", process_keys(workers.valkey, "one")["taken"], "gone-too")
    await workers.instance("one")
    await workers.enter("ann")
    await workers.until_decided(1)

    async def is_forgotten() -> bool:
        taken = process_keys(workers.valkey, "one")["taken"]
        return not await workers.valkey.execute("EXISTS", taken, keys["wakeups"], keys["woken"])

    await workers.until(is_forgotten)


async def test_wake_ups_and_messages_from_before_a_restart_of_the_service_are_processed(workers: WorkerHarness):
    """It fell, and was started again under the same name: calls it took, and messages that were delivered to it."""
    await workers.open(total=50)
    await workers.enter("ann", "bob")
    keys, hand = workers.keys(), process_keys(workers.valkey, "one")
    manager = workers.manager("one")
    await manager.start(CAMPAIGN)
    for task in list(manager._tasks):  # pyright: ignore[reportPrivateUsage]
        task.cancel()
    await workers.enter("eve")
    await workers.valkey.execute("XREADGROUP", "GROUP", "workers", "one", "STREAMS", keys["stream"], ">")
    await workers.open("other")
    await workers.enter("ann", campaign="other")
    await workers.valkey.execute("LMOVE", keys["wakeups"], hand["taken"], "RIGHT", "LEFT")

    await workers.instance("one")
    await workers.until_decided(3)
    await workers.until_decided(1, "other")


async def test_a_stopping_service_leaves_wake_ups_and_messages_to_others(waiting: WorkerHarness):
    await waiting.open(total=50)
    await waiting.enter("ann")
    one = await waiting.instance("one")
    await waiting.until_decided(1)
    async with patience():
        await one.stop()

    assert (await waiting.status()).processes == []
    hand = process_keys(waiting.valkey, "one")
    assert await waiting.valkey.execute("EXISTS", hand["served"], hand["taken"]) == 0
    await waiting.enter("bob")
    await waiting.instance("two")
    await waiting.until_decided(2)


async def test_a_process_serves_no_more_campaigns_than_it_has_connections_for(
    workers: WorkerHarness, monkeypatch: pytest.MonkeyPatch
):
    """Neither those that it finds busy when it starts, nor those that call all at once."""
    monkeypatch.setattr(manager_module, "_MOST_POOLS", 2)
    most, begin = 0, CampaignWorker._start_pool  # pyright: ignore[reportPrivateUsage]

    def count(manager: CampaignWorker, campaign: str, total_count: int) -> None:
        nonlocal most
        begin(manager, campaign, total_count)
        most = max(most, len(manager.pools))

    monkeypatch.setattr(CampaignWorker, "_start_pool", count)
    names = [f"c-{n}" for n in range(8)]
    for name in names:
        await workers.open(name)
    for name in names[:4]:
        await workers.enter("ann", campaign=name)
    await workers.instance("one")
    await asyncio.gather(*(workers.enter("bob", campaign=name) for name in names))
    for name in names:
        await workers.until(partial(_is_empty, workers, name))
    assert most == 2


async def test_the_final_cleanup_of_a_service_is_repeated_for_each_campaign(
    waiting: WorkerHarness, monkeypatch: pytest.MonkeyPatch
):
    """One that was cut short may be given a message after it was emptied: that must not keep the others from it."""
    manager = waiting.manager("one")
    for name in ("c-1", "c-2", "c-3"):
        await waiting.open(name)
        await waiting.enter("ann", campaign=name)
    hand = process_keys(waiting.valkey, "one")
    for name in ("c-1", "c-2"):
        await manager._serve(name, False)  # pyright: ignore[reportPrivateUsage]
    await waiting.valkey.execute("LMOVE", waiting.keys()["wakeups"], hand["taken"], "RIGHT", "LEFT")
    leave, failed = manager._leave, set[str]()  # pyright: ignore[reportPrivateUsage]

    async def fails_once(campaign: str, *, idle_ms: int) -> float | None:
        if campaign not in failed:
            failed.add(campaign)
            return 1.0
        return await leave(campaign, idle_ms=idle_ms)

    monkeypatch.setattr(manager, "_leave", fails_once)
    await manager._stop_all()  # pyright: ignore[reportPrivateUsage]
    assert failed == {"c-1", "c-2"}
    assert await waiting.valkey.execute("EXISTS", hand["served"], hand["taken"]) == 0


async def _is_empty(workers: WorkerHarness, campaign: str) -> bool:
    return (await workers.status(campaign)).depth == 0


async def _are_waiting(workers: WorkerHarness, count: int) -> bool:
    return (await workers.valkey.execute("INFO", "clients"))["blocked_clients"] == count


async def _commands(workers: WorkerHarness) -> int:
    return (await workers.valkey.execute("INFO", "stats"))["total_commands_processed"]
