"""What the leader finds: the things of the dead, and what a loss of the server's last moments left behind."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import WorkerHarness, worker_harness_at
from tidegate.core.clock import ManualClock, milliseconds, to_ms
from tidegate.primitives.membership import Membership
from tidegate.runtime.recoverer import Recoverer
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.recovery import RecoverableCampaigns
from tidegate.systems.campaigns.scripts import process_keys

LEASE = timedelta(seconds=10)


@pytest.fixture
async def quiet(tmp_path: Path, valkey: Valkey) -> AsyncGenerator[WorkerHarness]:
    """On each kind of server, without automatic workers."""
    async with worker_harness_at(await migrated_file(tmp_path / "works.db"), valkey, idle_timeout_seconds=30) as opened:
        yield opened


async def serve_and_read(workers: WorkerHarness, owner: str) -> None:
    """As a process that dies right after it has read."""
    manager = workers.manager(owner)
    await manager._serve(CAMPAIGN, False)  # pyright: ignore[reportPrivateUsage]
    stream = workers.keys()["stream"]
    await workers.valkey.execute("XREADGROUP", "GROUP", "workers", owner, "COUNT", 2, "STREAMS", stream, ">")


@pytest.mark.every_server
async def test_messages_pools_and_wake_ups_of_dead_processes_go_to_others(quiet: WorkerHarness):
    await quiet.open(total=50)
    await quiet.enter("ann", "bob", "eve")
    await quiet.open("other")
    await serve_and_read(quiet, "dead")
    keys, hand = quiet.keys(), process_keys(quiet.valkey, "dead")
    await quiet.enter("ann", campaign="other")
    await quiet.valkey.execute("DEL", keys["wakeups"])
    await quiet.valkey.execute("LPUSH", hand["taken"], "other")

    assert await quiet.recoverable().take_over("dead") == 2
    status = await quiet.status()
    assert (status.processes, status.pending, status.lag, status.is_woken) == ([], 0, 3, True)
    assert sorted(await quiet.wakeups()) == [CAMPAIGN.encode(), b"other"]
    assert await quiet.valkey.execute("EXISTS", hand["served"], hand["taken"]) == 0
    assert await quiet.recoverable().take_over("dead") == 0, "twice is harmless"

    await quiet.instance("living")
    await quiet.until_decided(3)
    await quiet.until_decided(1, "other")


@pytest.mark.every_server
async def test_messages_delivered_to_a_removed_frozen_process_are_found(quiet: WorkerHarness):
    """The server gives what comes next to whoever waits longest at the stream."""
    await quiet.open(total=50)
    await quiet.manager("frozen")._serve(CAMPAIGN, False)  # pyright: ignore[reportPrivateUsage]
    recoverable = quiet.recoverable()
    assert await recoverable.take_over("frozen") == 0
    await quiet.enter("ann")
    await quiet.manager("living")._serve(CAMPAIGN, False)  # pyright: ignore[reportPrivateUsage]
    stream = quiet.keys()["stream"]
    await quiet.valkey.execute("XREADGROUP", "GROUP", "workers", "frozen", "STREAMS", stream, ">")

    assert await recoverable.take_over("frozen") == 1
    assert (await quiet.status()).lag == 1


@pytest.mark.every_server
async def test_a_campaign_with_a_lost_wake_up_is_woken_again_and_empty_ones_are_removed(quiet: WorkerHarness):
    await quiet.open(total=50)
    await quiet.enter("ann")
    keys = quiet.keys()
    await quiet.valkey.execute("DEL", keys["wakeups"])  # and it is still noted as called
    await quiet.valkey.execute("SADD", keys["busy"], "empty")

    assert await quiet.recoverable().sweep_idle() == 300_000
    await quiet.recoverable().sweep_idle()
    assert await quiet.wakeups() == [CAMPAIGN.encode()], "once"
    assert await quiet.valkey.execute("SMEMBERS", keys["busy"]) == {CAMPAIGN.encode()}


@pytest.mark.every_server
async def test_a_message_held_for_long_is_not_counted(quiet: WorkerHarness):
    """The database was away for an hour. A process that dies after that must not take what it held with it."""
    await quiet.open(total=50)
    await quiet.enter("ann")
    await Membership(quiet.valkey, quiet.valkey.unit("all"), "one").join()
    stream = quiet.keys()["stream"]
    for _ in range(6):
        await serve_and_read(quiet, "one")
        [(message, _)] = await quiet.valkey.execute("XRANGE", stream, "-", "+")
        await quiet.valkey.execute("XCLAIM", stream, "workers", "one", 0, message, "IDLE", 300_001)
        await quiet.recoverable().sweep_idle()
        assert (await quiet.status()).lag == 1, "others may have it"
    await serve_and_read(quiet, "one")
    await quiet.recoverable().take_over("one")
    status = await quiet.status()
    assert (status.lag, status.dead) == (1, 0)


@pytest.mark.every_server
async def test_a_campaign_unknown_to_its_consumers_is_woken_again(quiet: WorkerHarness):
    """A server that lost its last moment believes in hands that have left since: they live, and do not come."""
    await quiet.open(total=50)
    await Membership(quiet.valkey, quiet.valkey.unit("all"), "living").join()
    await quiet.manager("living")._serve(CAMPAIGN, False)  # pyright: ignore[reportPrivateUsage]
    await quiet.enter("ann")
    assert await quiet.wakeups() == []
    await quiet.recoverable().sweep_idle()
    assert await quiet.wakeups() == [CAMPAIGN.encode()]


async def test_unknown_consumers_are_removed_at_the_second_check(quiet: WorkerHarness):
    await quiet.open(total=50)
    await quiet.enter("ann", "bob", "eve")
    await serve_and_read(quiet, "stranger")
    recoverable = quiet.recoverable()

    assert await recoverable.holders() == {"stranger"}
    assert await recoverable.sweep_idle() == 10_000, "as soon as it must have joined again"
    assert (await quiet.status()).processes == ["stranger"], "it may be about to join again"
    assert await recoverable.sweep_idle() > 200_000
    status = await quiet.status()
    assert (status.processes, status.lag, status.is_woken) == ([], 3, True)


async def test_the_recoverer_of_the_leader_takes_over_when_a_lease_ends(
    tmp_path: Path, embedded: Valkey, clock: ManualClock
):
    async with worker_harness_at(await migrated_file(tmp_path / "works.db"), embedded) as workers:
        await workers.open(total=50)
        await workers.enter("ann", "bob", "eve")
        await serve_and_read(workers, "dead")
        await Membership(embedded, embedded.unit("all"), "dead", clock).join()
        leader = Membership(embedded, embedded.unit("all"), "leader", clock)
        recoverable = RecoverableCampaigns(embedded, leader, workers.campaigns.settings, clock)
        losses = 0
        recoverer = Recoverer(leader, [recoverable], losses=lambda: losses, now_ms=lambda: to_ms(clock.now()))

        assert (await recoverer.fire() or 0) < milliseconds(LEASE)
        assert (await workers.status()).processes == ["dead"]
        clock.advance(LEASE)
        for _ in range(3):  # the server has to accept writes for a while
            assert (await workers.status()).processes == ["dead"]
            clock.advance(timedelta(milliseconds=await recoverer.fire() or 0))
        await recoverer.fire()
        assert (await workers.status()).processes == []
        assert await workers.wakeups() == [CAMPAIGN.encode()], "its first call, which nobody took, is enough"

        await embedded.execute("DEL", workers.keys()["wakeups"])
        await recoverer.fire()
        assert await workers.wakeups() == []
        losses += 1
        await recoverer.fire()
        assert await workers.wakeups() == [CAMPAIGN.encode()], "a server that was away may have lost something"
