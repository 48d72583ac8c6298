"""Who may leave when, decided in one step: nothing unread or pending is ever torn down, and nothing waits unnoticed."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN, CampaignHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.primitives.stream import Consumer
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import scripts
from tidegate.systems.campaigns.decider import campaign_stream
from tidegate.systems.campaigns.scripts import GROUP, process_keys

IDLE_MS = 30_000
QUIET = timedelta(milliseconds=IDLE_MS)


class Consumers:
    """Processes that join and leave a campaign, step by step."""

    def __init__(self, harness: CampaignHarness, clock: ManualClock) -> None:
        self.harness, self.clock = harness, clock

    async def serve(self, owner: str, *, if_needed: bool = False) -> list[Any]:
        return await scripts.serve(
            self.harness.valkey,
            **process_keys(self.harness.valkey, owner),
            campaign=CAMPAIGN,
            owner=owner,
            group=GROUP,
            if_needed=int(if_needed),
            **self.harness.keys(),
        )

    async def leave(self, owner: str, idle_ms: int = IDLE_MS) -> list[Any]:
        return await scripts.leave(
            self.harness.valkey,
            served=process_keys(self.harness.valkey, owner)["served"],
            campaign=CAMPAIGN,
            owner=owner,
            group=GROUP,
            idle_ms=idle_ms,
            now_ms=self.clock.pinned_ms,
            **self.harness.keys(),
        )

    async def settle(self, *ids: str, verdict: str = "issued", user: str = "ann", memory: str = "1|k") -> list[int]:
        return await scripts.settle(
            self.harness.valkey,
            campaign=CAMPAIGN,
            group=GROUP,
            settled=[(each, verdict, user, memory) for each in ids],
            sold_out=-1,
            backlog_limit=3,
            pause_ms=250,
            now_ms=self.clock.pinned_ms,
            **self.harness.keys(),
        )

    def consumer(self, owner: str) -> Consumer:
        harness = self.harness
        return campaign_stream(harness.valkey, CAMPAIGN, harness.campaigns.settings, self.clock).consumer(owner)

    async def read(self, owner: str, count: int = 1) -> list[str]:
        return [message.id for message in await self.consumer(owner).read(count, 0)]

    async def enter(self, *users: str) -> None:
        for user in users:
            assert (await self.harness.campaigns.enter(CAMPAIGN, user, "k")).answer == "ACCEPTED"

    async def exists(self) -> bool:
        return bool(await self.harness.valkey.execute("EXISTS", self.harness.keys()["stream"]))

    async def issued(self) -> int:
        return int(await self.harness.valkey.execute("HGET", self.harness.keys()["book"], "issued"))


@pytest.fixture
async def consumers(tmp_path: Path, valkey: Valkey, clock: ManualClock) -> AsyncGenerator[Consumers]:
    """On each kind of server."""
    async with harness_at(await migrated_file(tmp_path / "shop.db"), valkey, clock) as harness:
        await harness.open(total=10)
        yield Consumers(harness, clock)


@pytest.mark.every_server
async def test_the_last_consumer_removes_an_empty_stream_and_the_next_message_wakes_a_pool(consumers: Consumers):
    await consumers.enter("ann")
    assert await consumers.harness.wakeups() == [CAMPAIGN.encode()]
    assert await consumers.serve("one", if_needed=True) == [b"serving", 10]
    await consumers.serve("two")
    (ann,) = await consumers.read("one")
    await consumers.settle(ann)
    consumers.clock.advance(QUIET)

    assert await consumers.leave("one") == [b"left"], "another still reads"
    assert await consumers.exists()
    assert await consumers.leave("two") == [b"torn_down"]
    assert not await consumers.exists()
    assert await consumers.leave("two") == [b"torn_down"], "twice is harmless"

    await consumers.enter("bob")
    assert await consumers.harness.wakeups() == [CAMPAIGN.encode()] * 2, "the first was put there, and nobody took it"
    assert [entry.user for entry in await consumers.harness.line()] == ["bob"]


async def test_a_pool_with_unread_messages_does_not_retire(consumers: Consumers):
    await consumers.serve("one")
    await consumers.enter("ann")
    consumers.clock.advance(QUIET)

    assert await consumers.leave("one") == [b"unread"]
    assert (await consumers.harness.campaigns.status(CAMPAIGN)).processes == ["one"]


async def test_a_pool_with_own_pending_messages_does_not_leave_even_when_stopped(consumers: Consumers):
    """To take a consumer out of its group that holds something is to lose that."""
    await consumers.serve("one")
    await consumers.enter("ann")
    await consumers.read("one")
    consumers.clock.advance(QUIET)

    assert await consumers.leave("one") == [b"pending"]
    assert await consumers.leave("one", idle_ms=-1) == [b"pending"]
    assert (await consumers.harness.campaigns.status(CAMPAIGN)).pending == 1


async def test_pending_messages_of_others_keep_the_stream_but_not_idle_pools(consumers: Consumers):
    await consumers.serve("one")
    await consumers.enter("ann")
    (ann,) = await consumers.read("stranger")
    consumers.clock.advance(QUIET)

    assert await consumers.leave("one") == [b"left"]
    assert await consumers.exists(), "it was the last, but a message is pending"
    assert await consumers.settle(ann) == [1, 0], "and can be settled"


async def test_idle_means_that_no_consumer_got_a_message(consumers: Consumers):
    await consumers.serve("one")
    await consumers.serve("two")
    await consumers.enter("ann")
    (ann,) = await consumers.read("two")
    await consumers.settle(ann)
    consumers.clock.advance(QUIET - timedelta(milliseconds=1))

    assert await consumers.leave("one") == [b"early", 1]
    consumers.clock.advance(timedelta(milliseconds=1))
    assert await consumers.leave("one") == [b"left"]


@pytest.mark.every_server
async def test_a_pool_that_leaves_messages_behind_wakes_others(consumers: Consumers):
    await consumers.enter("ann")
    await consumers.harness.valkey.execute("LPOP", consumers.harness.keys()["wakeups"])
    await consumers.serve("one")
    assert await consumers.harness.wakeups() == []
    await consumers.read("one")
    await consumers.consumer("one").leave()

    assert await consumers.leave("one", idle_ms=-1) == [b"left"]
    assert await consumers.harness.wakeups() == [CAMPAIGN.encode()]
    assert await consumers.serve("two", if_needed=True) == [b"serving", 10]


@pytest.mark.every_server
async def test_a_late_settlement_acknowledges_and_counts_nothing(consumers: Consumers):
    """What was taken over has another id; and the same settlement again, after a broken connection, is nothing."""
    await consumers.serve("one")
    await consumers.enter("ann", "bob")
    ann, bob = await consumers.read("one", 2)
    assert await consumers.settle(ann) == [1, 1]
    assert await consumers.settle(ann) == [0, 1]
    await consumers.consumer("one").leave()

    assert await consumers.settle(bob, user="bob", verdict="refused", memory="2|k") == [0, 1]
    assert await consumers.issued() == 1
    assert (await consumers.harness.campaigns.enter(CAMPAIGN, "bob", "k")).number == 2, "the door remembers him"

    (bob,) = await consumers.read("two")
    assert await consumers.settle(bob, user="bob", verdict="refused", memory="2|k") == [1, 0]
    assert (await consumers.harness.campaigns.enter(CAMPAIGN, "bob", "k")).number == 3, "he may try again"
    assert await consumers.issued() == 1


async def test_a_long_queue_occasionally_wakes_more_pools(consumers: Consumers):
    await consumers.serve("one")
    await consumers.enter(*"abcdefg")
    first, second, third, *_ = await consumers.read("one", 7)

    await consumers.settle(first)
    assert await consumers.harness.wakeups() == [CAMPAIGN.encode()]
    await consumers.harness.valkey.execute(
        "DEL", consumers.harness.keys()["wakeups"], consumers.harness.keys()["woken"]
    )
    await consumers.settle(second)
    assert await consumers.harness.wakeups() == [], "not so soon again"
    consumers.clock.advance(timedelta(milliseconds=250))
    await consumers.settle(third)
    assert await consumers.harness.wakeups() == [CAMPAIGN.encode()]
    assert await consumers.serve("two", if_needed=True) == [b"nothing"], "all of it is in somebody's hands"
