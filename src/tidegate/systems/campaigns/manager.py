"""The campaigns that this process serves: it takes calls for hands, and lets consumer pools come and go.

One task listens for all campaigns, at one list on the server, where the one that waits longest is served: so calls go
round among the processes. A call that was taken stands in a list of this process until it is answered; if the process
dies before, others find it there.

A lock per campaign covers each start and stop of a consumer pool together with its script. Otherwise a call could be
answered for a consumer pool that is just leaving, and the server would count on hands that are gone.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple
from weakref import WeakValueDictionary

from tidegate.core.backoff import Backoff
from tidegate.core.clock import milliseconds
from tidegate.core.errors import NotFound, Unavailable, ValkeyUnavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.waiting import end, only_our_cancellation
from tidegate.systems.campaigns import scripts
from tidegate.systems.campaigns.campaign import require_campaign
from tidegate.systems.campaigns.consumer_context import ConsumerContext
from tidegate.systems.campaigns.consumer_pool import ConsumerPool
from tidegate.systems.campaigns.install import Installer
from tidegate.systems.campaigns.keys import GROUP, campaign_keys, process_keys
from tidegate.systems.campaigns.wakeups import CampaignWakeups

log = get_logger(__name__)

_STOP_WITHIN_S = 5.0
_LAST_WORDS_WITHIN_S = 1.0
_AFTER_CRASH = Backoff(first=timedelta(seconds=1), most=timedelta(minutes=1))
_LOOK_AGAIN_S = 1.0
"""For a message that just came the reader need not wait; another may have been given it meanwhile."""
_MOST_POOLS = 1000
"""Each has a connection. More campaigns than this wait for others that have time, or for one that gets quiet."""


class ConsumerPoolStatus(NamedTuple):
    """A consumer pool of this process."""

    campaign: str
    consumers: int
    in_hand: int
    """Entries that were read, and of which nothing became yet."""
    decided: int
    """Entries that it has decided."""


class CampaignManager:
    """A service of every process that works on campaigns."""

    def __init__(self, context: ConsumerContext, installer: Installer) -> None:
        self._context, self._installer = context, installer
        self._valkey, self._process_keys = context.valkey, process_keys(context.valkey, context.owner)
        self._wakeups = CampaignWakeups(context)
        self._pools: dict[str, ConsumerPool] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """The same, and those of consumer pools that have left and are about to end."""
        self._answering: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._freed = asyncio.Event()
        self._crashes: Counter[str] = Counter()
        """How often the consumer pools of a campaign crashed, one after the other."""

    @property
    def pools(self) -> list[ConsumerPoolStatus]:
        """Those at work, by campaign."""
        return [
            ConsumerPoolStatus(each.campaign, each.consumers, each.in_hand, each.decided)
            for _, each in sorted(self._pools.items())
        ]

    async def run(self, stopping: asyncio.Event) -> None:
        """Take calls until told to stop; then all consumer pools stop, in at most 5 seconds."""
        listener = asyncio.create_task(self._listen(), name="listen for campaigns")
        told = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([listener, told], return_when=asyncio.FIRST_COMPLETED)
            if listener.done():
                listener.result()
        finally:
            await end(listener, told, *self._answering)
            await self._stop_all()

    async def start(self, campaign: str) -> None:
        """Have this process serve a campaign, whether or not anything is in line. Twice is harmless.

        Raises `NotFound` where there is no such campaign.
        """
        await self._join(require_campaign(campaign), if_needed=False)

    async def stop(self, campaign: str) -> None:
        """Have this process serve it no more, in at most 5 seconds; what it has not finished is done elsewhere.

        Asked for by the consumer pool itself it returns at once. Twice is harmless. A later message may start it again.
        """
        pool, task = self._pools.get(campaign), self._at_work.get(campaign)
        if pool is None or task is None:
            return
        pool.stop()
        caller = asyncio.current_task()
        if caller is not task and not pool.is_run_by(caller):
            await asyncio.wait([task], timeout=_STOP_WITHIN_S)

    async def _listen(self) -> None:
        """Take a call after the other; after a failure, see first what it may have hidden."""
        failures, outage = 0, self._context.outages.listening
        while True:
            try:
                with only_our_cancellation():
                    await self._catch_up()
                    while True:
                        await self._has_room()
                        campaign = await self._wakeups.next()
                        failures = 0  # not before: a server that refuses writes lets us catch up
                        outage.over()
                        if campaign is not None:
                            self._answer(campaign)
            except Unavailable as error:
                failures += 1
                await outage.pause(error, failures)

    async def _catch_up(self) -> None:
        """Answer calls that we took and do not know of, and look for campaigns whose messages nobody reads."""
        taken, served, busy = await self._wakeups.taken(), await self._served(), await self._wakeups.busy()
        for campaign in served - self._pools.keys():  # of an earlier life of this service: somebody counts on us
            self._answer(campaign, if_needed=False)
        for campaign in taken:
            self._answer(campaign)
        for campaign in busy - taken:
            await self._has_room()
            self._answer(campaign)

    async def _has_room(self) -> None:
        while len(self._pools) + len(self._answering) >= _MOST_POOLS:
            self._freed.clear()
            await self._freed.wait()

    def _answer(self, campaign: str, *, if_needed: bool = True) -> None:
        """Join, in a task of its own: others call meanwhile."""
        task = asyncio.create_task(self._answer_patiently(campaign, if_needed), name=f"answer {campaign}")
        self._answering.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("campaign.wakeup_failed", task=task.get_name(), exc_info=error)

    async def _answer_patiently(self, campaign: str, if_needed: bool) -> None:
        outages = self._context.outages
        try:
            await outages.joining.retry(lambda: self._join(campaign, if_needed=if_needed))
        except NotFound:
            log.warning("campaign.wakeup_ignored", campaign=campaign)
            await outages.joining.retry(lambda: self._wakeups.ignore(campaign))

    async def _join(self, campaign: str, *, if_needed: bool) -> None:
        while (pool := self._pools.get(campaign)) is not None and pool.is_stopping:
            await asyncio.wait([self._at_work[campaign]])
        async with self._lock(campaign):
            reply = await self._serve(campaign, if_needed)
            if reply == [b"unknown"]:
                await self._installer.restore(campaign)
                reply = await self._serve(campaign, if_needed)
            match reply:
                case [b"serving", int(total_count)]:
                    self._begin(campaign, total_count)
                case [b"nothing"]:
                    pass
                case [b"unknown"]:
                    raise ValkeyUnavailable(f"campaign {campaign!r} is lost as soon as it is installed")
                case _:
                    raise AssertionError(f"serve.lua replied {reply!r}")

    async def _serve(self, campaign: str, if_needed: bool) -> list[object]:
        return await scripts.serve(
            self._valkey,
            **self._process_keys,
            campaign=campaign,
            owner=self._context.owner,
            group=GROUP,
            if_needed=int(if_needed),
            **campaign_keys(self._valkey, campaign),
        )

    def _begin(self, campaign: str, total_count: int) -> None:
        if campaign in self._pools:
            return
        pool = self._pools[campaign] = ConsumerPool(self._context, campaign, total_count, self._retire)
        task = self._at_work[campaign] = asyncio.create_task(self._work(pool), name=f"consumer pool of {campaign}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._count_pools()
        log.debug("campaign.consumers_started", campaign=campaign, consumers=pool.consumers)

    async def _work(self, pool: ConsumerPool) -> None:
        try:
            pause_s = await self._run(pool)
            if self._pools.get(pool.campaign) is pool:  # it was not quiet
                leaving = self._context.outages.leaving
                await leaving.retry(lambda: self._abandon(pool.campaign, pool.give_back))
            await asyncio.sleep(pause_s)  # others may have it meanwhile; we are not to be the next
        finally:
            self._gone(pool)

    async def _run(self, pool: ConsumerPool) -> float:
        """Until it ends; how long this process lets others serve the campaign after that."""
        try:
            await pool.run()
        except Exception as error:  # a defect; the campaign calls again, and may have more luck
            log.error("campaign.consumers_crashed", campaign=pool.campaign, exc_info=error)
            self._crashes[pool.campaign] += 1
            return _AFTER_CRASH.delay(self._crashes[pool.campaign]).total_seconds()
        self._crashes.pop(pool.campaign, None)
        return 0.0

    async def _abandon(self, campaign: str, give_back: Callable[[], Awaitable[object]]) -> None:
        """Give back what is in hand, and tell the server that we are gone: it must not count on us."""
        async with self._lock(campaign):
            await give_back()
            if await self._leave(campaign, idle_ms=-1) is not None:
                raise ValkeyUnavailable(f"campaign {campaign!r}: a read that was cancelled was served in spite of that")

    async def _retire(self, pool: ConsumerPool) -> float | None:
        """See `Retire`."""
        async with self._lock(pool.campaign):
            wait_s = await self._leave(pool.campaign, idle_ms=milliseconds(self._context.settings.idle_timeout))
            if wait_s is None:
                self._gone(pool)
        return wait_s

    async def _leave(self, campaign: str, *, idle_ms: int) -> float | None:
        """None when the server knows that we are gone; else after how long to ask again."""
        reply = await scripts.leave(
            self._valkey,
            served=self._process_keys["served"],
            campaign=campaign,
            owner=self._context.owner,
            group=GROUP,
            idle_ms=idle_ms,
            now_ms=self._context.database.clock.pinned_ms,
            **campaign_keys(self._valkey, campaign),
        )
        match reply:
            case [b"left" | b"torn_down" as how]:
                log.debug("campaign.consumers_stopped", campaign=campaign, torn_down=how == b"torn_down")
                return None
            case [b"unread"]:
                return _LOOK_AGAIN_S
            case [b"pending"]:
                return self._context.settings.idle_timeout_seconds
            case [b"early", int(wait_ms)]:
                return wait_ms / 1000
            case _:
                raise AssertionError(f"leave.lua replied {reply!r}")

    def _gone(self, pool: ConsumerPool) -> None:
        if self._pools.get(pool.campaign) is pool:
            del self._pools[pool.campaign], self._at_work[pool.campaign]
            self._freed.set()
            self._count_pools()

    async def _stop_all(self) -> None:
        for pool in self._pools.values():
            pool.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_WITHIN_S - _LAST_WORDS_WITHIN_S)
        await end(*self._tasks)
        try:
            async with asyncio.timeout(_LAST_WORDS_WITHIN_S):
                await self._leave_nothing_behind()
        except (Unavailable, TimeoutError) as error:
            # The leader finds what we had: when our lease ends, or among hands that nobody has.
            log.warning("campaign.leaving_failed", error=str(error) or "no answer in time")

    async def _leave_nothing_behind(self) -> None:
        """Consumer pools that were cut short, and calls that were taken and not answered."""
        await self._wakeups.return_taken()
        await asyncio.gather(*(self._abandon_patiently(campaign) for campaign in await self._served()))

    async def _abandon_patiently(self, campaign: str) -> None:
        consumer = self._context.stream(campaign).consumer(self._context.owner)
        await self._context.outages.leaving.retry(lambda: self._abandon(campaign, consumer.leave))

    async def _served(self) -> set[str]:
        return {each.decode() for each in await self._valkey.execute("SMEMBERS", self._process_keys["served"])}

    def _count_pools(self) -> None:
        metrics.CAMPAIGN_CREWS.set(len(self._pools))
        metrics.CAMPAIGN_CONSUMERS.set(sum(pool.consumers for pool in self._pools.values()))

    def _lock(self, campaign: str) -> asyncio.Lock:
        lock = self._locks.get(campaign)
        if lock is None:
            lock = self._locks[campaign] = asyncio.Lock()
        return lock
