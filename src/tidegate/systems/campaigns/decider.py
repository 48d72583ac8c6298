"""Decides entries in SQL: each is issued, refused or sold out.

The consumers of a pool share one `Decider`, which commits in groups: batches that arrive during a transaction are
committed together in the next one.

    commit the transaction -> settle on the Valkey server -> notify watchers

If the process dies between two steps, the message is delivered again, its row is found, and it is settled. The next
transaction runs while the previous one is settled.

A transaction that fails is repeated for each batch alone, then for each entry alone, to find the entry that causes the
error. That entry is retried after a pause, and becomes a dead letter after `max_deliveries` attempts.

An unavailable database does not count as an attempt. If a transaction keeps failing as unavailable while the database
accepts a write to the row of the campaign, the failure is attributed to its entries.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from tidegate.core.clock import Clock
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.stream import Consumer, Stream, StreamSettings
from tidegate.runtime.outage import Outage, StepKeepsFailing
from tidegate.runtime.waiting import end
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import campaign_store, metrics, scripts
from tidegate.systems.campaigns.entry_decisions import AppliedEntries, apply_entries
from tidegate.systems.campaigns.kinds import Kinds, KindUnknown
from tidegate.systems.campaigns.model import CampaignEntry
from tidegate.systems.campaigns.scripts import GROUP, campaign_keys, campaigns_unit, stream_name
from tidegate.systems.campaigns.settings import CampaignSettings


@dataclass(frozen=True)
class Outages:
    """Outages that consumer pools wait for; all campaigns of a process share them, so each is logged once."""

    listening: Outage = field(default_factory=lambda: Outage("campaigns.listen"))
    joining: Outage = field(default_factory=lambda: Outage("campaigns.join"))
    reading: Outage = field(default_factory=lambda: Outage("campaigns.read"))
    deciding: Outage = field(default_factory=lambda: Outage("campaigns.decide"))
    proving: Outage = field(default_factory=lambda: Outage("campaigns.prove"))
    settling: Outage = field(default_factory=lambda: Outage("campaigns.settle"))
    leaving: Outage = field(default_factory=lambda: Outage("campaigns.leave"))


@dataclass(frozen=True)
class ConsumerContext:
    """Servers, settings, known kinds of campaigns, and the name of this process."""

    valkey: Valkey
    database: Database
    owner: str
    kinds: Kinds
    settings: CampaignSettings
    outages: Outages = field(default_factory=Outages)
    on_decided: Callable[[str, Collection[str]], object] = lambda _campaign, _users: None
    """Called with a campaign and its users with new results; must not block."""

    @property
    def can_block(self) -> bool:
        """Whether reads block on the server instead of polling."""
        return self.valkey.info.can_block if self.settings.blocking is None else self.settings.blocking

    def stream(self, campaign: str) -> Stream:
        """Return the stream of one campaign."""
        return campaign_stream(self.valkey, campaign, self.settings, self.database.clock)


def campaign_stream(valkey: Valkey, campaign: str, settings: CampaignSettings, clock: Clock) -> Stream:
    """Return the stream of one campaign, configured by the settings of campaigns."""
    ours = StreamSettings(
        group=GROUP,
        max_deliveries=settings.max_deliveries,
        blocking=settings.blocking,
        poll_interval=timedelta(milliseconds=settings.poll_interval_ms),
    )
    return Stream(valkey, campaigns_unit(valkey), stream_name(campaign), ours, clock, one_of="campaigns")


log = get_logger(__name__)
_MOST_AT_ONCE = 500
"""Entries in one transaction, which locks the row of the campaign, and on SQLite the database."""
_AWAY_S = 5.0
"""How long a transaction is repeated before a write to the campaign's row tests the database."""
_CALL_PAUSE_MS = 250
"""Least interval between two wake-ups for a campaign with a long line."""


class PendingEntry(NamedTuple):
    """An entry, with the id and the delivery count of its message."""

    message: str
    deliveries: int
    entry: CampaignEntry


class _PendingBatch(NamedTuple):
    tasks: Sequence[PendingEntry]
    done: asyncio.Future[None]


class Decider:
    """Decides the entries of one campaign for all consumers of a pool."""

    def __init__(
        self,
        context: ConsumerContext,
        campaign: str,
        consumer: Consumer,
        *,
        backlog_limit: int,
        on_room: Callable[[], object],
        on_crash: Callable[[BaseException], object],
    ) -> None:
        """When more than `backlog_limit` messages are left, another process is woken.

        `on_room` is called when messages are settled or returned, `on_crash` after an unexpected error.
        """
        self._context, self._campaign, self._consumer, self._backlog_limit = context, campaign, consumer, backlog_limit
        self._on_room, self._on_crash = on_room, on_crash
        self._keys = campaign_keys(context.valkey, campaign)
        self._waiting: list[_PendingBatch] = []
        self._running: set[asyncio.Task[None]] = set()
        self._committing: asyncio.Task[None] | None = None
        self.decided = 0
        """Number of entries that were decided here."""
        self.resting = 0
        """Number of failed entries that wait for their retry."""

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """Tasks that commit, settle or wait for a retry."""
        return frozenset(self._running)

    async def decide(self, tasks: Sequence[PendingEntry]) -> None:
        """Return when all of these are decided and settled, or wait for a retry."""
        batch = _PendingBatch(tasks, asyncio.get_running_loop().create_future())
        self._waiting.append(batch)
        # One transaction at a time: they all lock the row of the campaign. Batches that come
        # meanwhile wait for the next one.
        if self._committing is None:
            self._committing = self._start(self._commit_all(), "decide")
        await batch.done

    async def finish(self) -> None:
        """Wait until the running transaction is committed and settled; waiting batches are dropped."""
        self._waiting.clear()
        # A retry may wait for minutes. Its message stays held and is returned when the pool leaves.
        while busy := [task for task in self._running if task.get_name() != "retry later"]:
            await asyncio.wait(busy)

    async def close(self) -> None:
        """Cancel all tasks. Committed entries stay committed; the next reader of their messages settles them."""
        self._waiting.clear()
        await end(*self._running)

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._commit(self._take())
        finally:
            # No await after the last check of `_waiting`: a batch that comes now starts a new task.
            self._committing = None

    def _take(self) -> list[_PendingBatch]:
        taken, entries = 0, 0
        while taken < len(self._waiting) and entries < _MOST_AT_ONCE:
            entries += len(self._waiting[taken].tasks)
            taken += 1
        batches, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return batches

    async def _commit(self, batches: Sequence[_PendingBatch]) -> None:
        tasks = [task for batch in batches for task in batch.tasks]
        try:
            applied = await self._apply(tasks)
        except KindUnknown:  # not an error of an entry: other processes may know the kind
            raise
        except Exception as error:
            if len(batches) > 1:
                for batch in batches:
                    await self._commit([batch])
            else:
                await self._commit_one_by_one(batches[0], error)
        else:
            # Not awaited: the next transaction runs while this one is settled.
            self._start(self._settle(tasks, applied, batches), "settle")

    async def _commit_one_by_one(self, batch: _PendingBatch, error: Exception) -> None:
        """Decide each entry alone, to find the one that causes the error."""
        for task in batch.tasks:
            try:
                # A batch of one entry has just failed: its error is known, and it is not tried again at once.
                applied = await self._apply([task]) if len(batch.tasks) > 1 else None
            except Exception as own:
                applied, error = None, own
            if applied is None:
                self._start(self._retry_later(task, error), "retry later")
            else:
                await self._settle([task], applied, [])
        _complete([batch])

    async def _apply(self, tasks: Sequence[PendingEntry]) -> AppliedEntries:
        """Decide entries in one transaction, which is repeated while the database is unavailable.

        Raises `StepKeepsFailing` if the database accepts other writes meanwhile.
        """
        context, entries = self._context, [task.entry for task in tasks]
        is_proven = False
        while True:
            try:
                return await context.outages.deciding.retry(
                    lambda: context.database.transaction(apply_entries, context.kinds, self._campaign, entries),
                    within_s=_AWAY_S,
                )
            except Unavailable as error:
                # A real outage makes this wait as well. If the write succeeds, the database serves this campaign, and
                # the failure is that of the transaction.
                await context.outages.proving.retry(
                    lambda: context.database.transaction(campaign_store.touch, self._campaign)
                )
                if is_proven:
                    raise StepKeepsFailing(error) from error
                # The first proof may fall into the moment of recovery, so the transaction gets another chance.
                is_proven = True

    async def _settle(
        self, tasks: Sequence[PendingEntry], applied: AppliedEntries, batches: Sequence[_PendingBatch]
    ) -> None:
        """Record committed decisions on the Valkey server, count them, and complete their batches."""
        settled = [
            (task.message, decision.verdict, task.entry.user, decision.memory)
            for task, decision in zip(tasks, applied.decisions, strict=True)
        ]
        await self._context.outages.settling.retry(
            lambda: scripts.settle(
                self._context.valkey,
                campaign=self._campaign,
                group=GROUP,
                settled=settled,
                sold_out=applied.sold_out,
                backlog_limit=self._backlog_limit,
                pause_ms=_CALL_PAUSE_MS,
                now_ms=self._context.database.clock.pinned_ms,
                **self._keys,
            ),
        )
        self._release(tasks)
        self.decided += len(tasks)
        for verdict, count in Counter(decision.verdict for decision in applied.decisions).items():
            metrics.CAMPAIGN_PROCESSED.labels(verdict).inc(count)
        _complete(batches)

    async def _retry_later(self, task: PendingEntry, error: Exception) -> None:
        """Hold a failed entry for the pause before its retry, then return it to the stream."""
        # The last failed attempt becomes a dead letter by `retry`; there is no reason to delay it.
        is_last = task.deliveries >= self._context.settings.max_deliveries
        pause = timedelta() if is_last else self._context.settings.retry_pauses.delay(task.deliveries)
        facts = {"campaign": self._campaign, "number": task.entry.number, "deliveries": task.deliveries}
        log.warning("campaign.entry_failed", **facts, is_last=is_last, exc_info=error)
        self.resting += 1
        self._on_room()  # others are read while it waits
        try:
            await asyncio.sleep(pause.total_seconds())
        finally:
            self.resting -= 1
        reason = f"{type(error).__name__}: {error}"
        await self._context.outages.settling.retry(lambda: self._consumer.retry([task.message], reason))
        self._release([task])

    def _release(self, tasks: Sequence[PendingEntry]) -> None:
        """Remove entries that were settled or returned from those that this process holds, and notify watchers."""
        # Forget the messages before `_on_room`: the reader computes its room from the held ones.
        self._consumer.settled(task.message for task in tasks)
        self._context.on_decided(self._campaign, [task.entry.user for task in tasks])
        self._on_room()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)


def _complete(batches: Sequence[_PendingBatch]) -> None:
    """Wake the callers of `decide` that wait for these batches."""
    for batch in batches:
        if not batch.done.done():
            batch.done.set_result(None)
