"""Starts and stops consumer pools in this process, woken by campaigns that have entries.

One task waits for the wake-ups of all campaigns, in one list on the server. The longest waiting process gets the
next one. A wake-up that was taken stays in a list of this process until the campaign is served; if the process dies
before, the leader returns it.

For each campaign, a lock is held while a pool starts (with `serve.lua`) or stops (with `leave.lua`). Otherwise a
wake-up could be handled by a pool that is just stopping, and Valkey would list this process as serving a campaign for
which it has no pool.
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
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.waiting import end, only_our_cancellation
from tidegate.systems.campaigns import metrics, scripts
from tidegate.systems.campaigns.consumer_pool import ConsumerPool
from tidegate.systems.campaigns.decider import ConsumerContext
from tidegate.systems.campaigns.installation import CampaignInstaller
from tidegate.systems.campaigns.model import require_campaign
from tidegate.systems.campaigns.scripts import GROUP, busy_key, campaign_keys, process_keys, wakeups_key

_WAKEUP_READ_S = 120.0
"""Duration of one blocking read: short enough to notice a connection that broke silently."""
_LONGEST_POLL_PAUSE_S = 1.0
"""Longest pause between two reads where the server does not allow blocking commands."""


class CampaignWakeups:
    """The wake-ups of all campaigns, as seen by one process."""

    def __init__(self, context: ConsumerContext) -> None:
        self._valkey, self._can_block = context.valkey, context.can_block
        self._first_pause_s = context.settings.poll_interval_ms / 1000
        self._wakeups, self._taken = wakeups_key(context.valkey), process_keys(context.valkey, context.owner)["taken"]

    async def next(self) -> str | None:
        """Wait for the oldest wake-up, take it, and return its campaign; None after a timeout.

        After an error or a cancellation a wake-up may have been taken without being returned: see `taken`.
        """
        move = (self._wakeups, self._taken, "RIGHT", "LEFT")
        if self._can_block:
            call = await self._valkey.execute_blocking(
                "BLMOVE", *move, f"{_WAKEUP_READ_S:.0f}", within_s=_WAKEUP_READ_S
            )
            return None if call is None else call.decode()
        pause_s = self._first_pause_s
        # Not by `execute`, which repeats the command after an error and could take two.
        while (call := await self._valkey.execute_blocking("LMOVE", *move, within_s=0)) is None:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, max(_LONGEST_POLL_PAUSE_S, self._first_pause_s))
        return call.decode()

    async def taken(self) -> set[str]:
        """Campaigns of wake-ups that this process took and has not handled."""
        return {each.decode() for each in await self._valkey.execute("LRANGE", self._taken, 0, -1)}

    async def busy(self) -> set[str]:
        """Campaigns that may have undecided entries."""
        return {each.decode() for each in await self._valkey.execute("SMEMBERS", busy_key(self._valkey))}

    async def ignore(self, campaign: str) -> None:
        """Drop the wake-up of a campaign that does not exist."""
        keys = campaign_keys(self._valkey, campaign)
        await scripts.ignore_wakeup(self._valkey, taken=self._taken, campaign=campaign, **keys)

    async def return_taken(self) -> None:
        """Make the wake-ups that this process took and has not handled available to other processes."""
        await scripts.return_wakeups(self._valkey, wakeups=self._wakeups, taken=self._taken)


log = get_logger(__name__)
_STOP_WITHIN_S = 5.0
_LEAVE_WITHIN_S = 1.0
_AFTER_CRASH = Backoff(first=timedelta(seconds=1), most=timedelta(minutes=1))
_ASK_AGAIN_S = 1.0
"""Pause before a retry when an unread message arrived; another consumer may read it meanwhile."""
_MOST_POOLS = 1000
"""Each pool uses a connection. Further campaigns wait for other processes, or until a pool stops."""


class ConsumerPoolStatus(NamedTuple):
    """Counters of one consumer pool of this process."""

    campaign: str
    consumers: int
    in_hand: int
    """Entries that were read and are not settled yet."""
    decided: int
    """Entries that the pool has decided."""


class CampaignWorker:
    """Service that runs the consumer pools of a process."""

    def __init__(self, context: ConsumerContext, installer: CampaignInstaller) -> None:
        self._context, self._installer = context, installer
        self._valkey, self._process_keys = context.valkey, process_keys(context.valkey, context.owner)
        self._wakeups = CampaignWakeups(context)
        self._pools: dict[str, ConsumerPool] = {}
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Tasks of all pools, including those that have left their campaign and are about to end."""
        self._answering: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._freed = asyncio.Event()
        self._crashes: Counter[str] = Counter()
        """Number of consecutive crashes per campaign."""

    @property
    def pools(self) -> list[ConsumerPoolStatus]:
        """Counters of the running pools, ordered by campaign."""
        return [
            ConsumerPoolStatus(each.campaign, each.consumers, each.in_hand, each.decided)
            for _, each in sorted(self._pools.items())
        ]

    async def run(self, stopping: asyncio.Event) -> None:
        """Handle wake-ups until `stopping` is set; then stop all pools within 5 seconds."""
        listener = asyncio.create_task(self._listen(), name="wait for campaign wake-ups")
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([listener, stopped], return_when=asyncio.FIRST_COMPLETED)
            if listener.done():
                listener.result()
        finally:
            # End the listener before the pools, so that no wake-up starts a pool during the stop.
            await end(listener, stopped, *self._answering)
            await self._stop_all()

    async def start(self, campaign: str) -> None:
        """Start consumers for a campaign, even if it has no entries. Repeating it has no effect.

        Raises `NotFound` if the campaign does not exist.
        """
        await self._join(require_campaign(campaign), if_needed=False)

    async def stop(self, campaign: str) -> None:
        """Stop the consumers of a campaign within 5 seconds; other processes take over its unfinished entries.

        Returns at once when called by a task of the pool. Repeating it has no effect. A later entry may start it again.
        """
        pool, task = self._pools.get(campaign), self._at_work.get(campaign)
        if pool is None or task is None:
            return
        pool.stop()
        caller = asyncio.current_task()
        # A task of the pool that waited for the pool would wait for itself.
        if caller is not task and not pool.is_run_by(caller):
            await asyncio.wait([task], timeout=_STOP_WITHIN_S)

    async def _listen(self) -> None:
        """Handle wake-ups. At the start and after each failure, first find campaigns with missed wake-ups."""
        failures, outage = 0, self._context.outages.listening
        while True:
            try:
                with only_our_cancellation():
                    await self._catch_up()
                    while True:
                        await self._has_room()
                        # Taken only when there is room: a wake-up that stays in the shared list
                        # can go to another process.
                        campaign = await self._wakeups.next()
                        failures = 0  # not before: `_catch_up` succeeds on a server that refuses writes
                        outage.over()
                        if campaign is not None:
                            self._answer(campaign)
            except Unavailable as error:
                failures += 1
                await outage.pause(error, failures)

    async def _catch_up(self) -> None:
        """Handle wake-ups that were taken before, and find campaigns with unread entries."""
        # Wake-ups that were taken without being returned (a broken connection), campaigns that the server still lists
        # for this process, and campaigns with a lost wake-up.
        taken, served, busy = await self._wakeups.taken(), await self._served(), await self._wakeups.busy()
        for campaign in served - self._pools.keys():  # listed before a restart of this service
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
        """Start a task that serves the campaign, so that other wake-ups are not delayed."""
        task = asyncio.create_task(self._answer_with_retries(campaign, if_needed), name=f"answer {campaign}")
        self._answering.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("campaign.wakeup_failed", task=task.get_name(), exc_info=error)

    async def _answer_with_retries(self, campaign: str, if_needed: bool) -> None:
        outages = self._context.outages
        try:
            await outages.joining.retry(lambda: self._join(campaign, if_needed=if_needed))
        except NotFound:
            log.warning("campaign.wakeup_ignored", campaign=campaign)
            await outages.joining.retry(lambda: self._wakeups.ignore(campaign))

    async def _join(self, campaign: str, *, if_needed: bool) -> None:
        """Serve a campaign from now on; with `if_needed`, only if messages are unread.

        Installs the campaign first if the Valkey server does not know it.
        """
        # A stopping pool cannot serve the campaign; wait outside of the lock, which it needs in order to leave.
        while (pool := self._pools.get(campaign)) is not None and pool.is_stopping:
            await asyncio.wait([self._at_work[campaign]])
        async with self._lock(campaign):
            reply = await self._serve(campaign, if_needed)
            if reply == [b"unknown"]:
                # The server lost the campaign, but a wake-up or a list still names it.
                await self._installer.restore(campaign)
                reply = await self._serve(campaign, if_needed)
            match reply:
                case [b"serving", int(total_count)]:
                    self._start_pool(campaign, total_count)
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

    def _start_pool(self, campaign: str, total_count: int) -> None:
        """Start the consumer pool of a campaign, unless it runs.

        `total_count` is the expected number of entries, which determines the number of consumers.
        """
        # `serve` was needed all the same: it restores what the server has lost.
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
            if self._pools.get(pool.campaign) is pool:  # it did not leave because of idleness
                leaving = self._context.outages.leaving
                await leaving.retry(lambda: self._abandon(pool.campaign, pool.return_messages))
            await asyncio.sleep(pause_s)  # so that another process serves the campaign next
        finally:
            self._gone(pool)

    async def _run(self, pool: ConsumerPool) -> float:
        """Run a pool until it ends; return how long to leave the campaign to other processes."""
        try:
            await pool.run()
        except Exception as error:  # unexpected; the campaign is served again after a pause
            log.error("campaign.consumers_crashed", campaign=pool.campaign, exc_info=error)
            self._crashes[pool.campaign] += 1
            return _AFTER_CRASH.delay(self._crashes[pool.campaign]).total_seconds()
        self._crashes.pop(pool.campaign, None)
        return 0.0

    async def _abandon(self, campaign: str, return_messages: Callable[[], Awaitable[object]]) -> None:
        """Return unfinished messages, and remove this process from those that serve the campaign."""
        async with self._lock(campaign):
            # A consumer that holds messages must not be removed from its group: they would be lost.
            await return_messages()
            if await self._leave(campaign, idle_ms=-1) is not None:
                raise ValkeyUnavailable(f"campaign {campaign!r}: the server delivered messages to a cancelled read")

    async def _retire(self, pool: ConsumerPool) -> float | None:
        """Leave an idle campaign and forget its pool: see `Retire`."""
        # Leaving on the server and removing the pool here are one step for this process: a wake-up that comes now
        # waits, and starts a new pool.
        async with self._lock(pool.campaign):
            wait_s = await self._leave(pool.campaign, idle_ms=milliseconds(self._context.settings.idle_timeout))
            if wait_s is None:
                self._gone(pool)
        return wait_s

    async def _leave(self, campaign: str, *, idle_ms: int) -> float | None:
        """Leave a campaign. Return None on success, else the seconds after which to try again."""
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
                return _ASK_AGAIN_S
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
        # All pools stop at the same time. Those that take too long are cancelled, and their
        # messages are returned below.
        for pool in self._pools.values():
            pool.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_WITHIN_S - _LEAVE_WITHIN_S)
        await end(*self._tasks)
        try:
            async with asyncio.timeout(_LEAVE_WITHIN_S):
                await self._leave_all()
        except (Unavailable, TimeoutError) as error:
            # The leader recovers it when the lease of this process ends, or in its next sweep.
            log.warning("campaign.leaving_failed", error=str(error) or "no answer in time")

    async def _leave_all(self) -> None:
        """Return wake-ups that were not handled, and leave the campaigns of cancelled pools."""
        await self._wakeups.return_taken()
        await asyncio.gather(*(self._abandon_with_retries(campaign) for campaign in await self._served()))

    async def _abandon_with_retries(self, campaign: str) -> None:
        consumer = self._context.stream(campaign).consumer(self._context.owner)
        await self._context.outages.leaving.retry(lambda: self._abandon(campaign, consumer.leave))

    async def _served(self) -> set[str]:
        return {each.decode() for each in await self._valkey.execute("SMEMBERS", self._process_keys["served"])}

    def _count_pools(self) -> None:
        metrics.CAMPAIGN_CONSUMER_POOLS.set(len(self._pools))
        metrics.CAMPAIGN_CONSUMERS.set(sum(pool.consumers for pool in self._pools.values()))

    def _lock(self, campaign: str) -> asyncio.Lock:
        # Weak references: a lock that is not in use disappears, so thousands of campaigns leave nothing behind.
        lock = self._locks.get(campaign)
        if lock is None:
            lock = self._locks[campaign] = asyncio.Lock()
        return lock
