"""Applies stored answers to products: a service of the leader. The PENDING rows are its queue.

What holds at every moment, whichever process dies:

- **Order.** An answer of a stage is applied when no earlier stage of its product is pending: no unfinished job of the
  same run, and no PENDING answer of the same run or an older one. Stages that ended without an answer (failed,
  withheld, dead letter) are skipped, and the product records them with the reason (`missing`).
- **Once.** The effect of an answer and its state PROCESSED are one transaction, which first locks the answers that are
  still PENDING. So an answer is applied at most once, and counted on its product (`applied`, `applied_as`).
- **Newest.** Of one stage the answer with the highest id counts; an older one is PROCESSED as superseded.
- **No blocking.** An answer that cannot be applied waits for its next attempt; after the last one it is FAILED, a dead
  letter with its reason, until it is replayed. Only later stages of the same product and run wait for it.

If the process dies

- between reading and the commit: the answers are PENDING as before, and the next leader applies them;
- during the commit: either it happened and they are PROCESSED, or it did not and they are PENDING;
- while an answer waits for its next attempt or for an earlier stage: its row says so. A new leader processes everything
  that is due, and sleeps until the next answer is.

Wake-ups come from every transaction that leaves something to do (`writing.RAWS_STORED`), from the death of a process
(which may have died between its commit and its wake-up) and from a replay. An additional wake-up is harmless, and a
lost one delays a waiting answer by `WAITS_AT_MOST` at most.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Row, func, select, update

from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, occurs
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.faults import words_of
from tidegate.systems.crawl import raws
from tidegate.systems.crawl.applying import BatchTally, PreparedRaw, RetryPolicy, apply
from tidegate.systems.crawl.metrics import CRAWL_RAWS
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.site import Sites, explain
from tidegate.systems.crawl.stages import RawState, Stage
from tidegate.systems.crawl.tables import crawl_raws
from tidegate.systems.crawl.writing import RAWS_STORED

log = get_logger(__name__)

_BATCH = 200
_PACE_S = 0.05
"""Minimum time between two reads, which cost about the same for one answer as for many."""
_LONGEST_SLEEP_S = 3_600.0
_c = crawl_raws.c


class RawProcessor:
    """Service that applies stored answers; see the module."""

    def __init__(self, database: Database, sites: Sites, settings: CrawlSettings) -> None:
        self._database, self._sites = database, sites
        self._patience = RetryPolicy(settings.raw_attempts, settings.raw_pauses)
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._outage = Outage("crawl.raws")
        self.is_running = False
        """Whether this process applies answers, so that no other process has to be notified."""

    def notify(self) -> None:
        """Wake the service. Call it from the event loop; several wake-ups are one."""
        self._wake.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Apply what is due, and whatever becomes due, until told to stop."""
        # Subscribe before the first drain: an answer that is stored meanwhile sets the event.
        silence = self._database.subscribe(RAWS_STORED, self.notify)
        waking = asyncio.create_task(stopping.wait(), name="wake the processor to stop")
        waking.add_done_callback(lambda _: self._wake.set())
        self.is_running = True
        try:
            with suppress(Unavailable):  # stopped during an outage: the next leader applies what is pending
                await self._keep_draining(stopping)
        finally:
            self.is_running = False
            silence()
            await end(waking)

    async def _keep_draining(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            # Cleared before draining, not after: a wake-up during the drain causes another one.
            self._wake.clear()
            next_in = await self._outage.retry(self.drain, stopping=stopping)
            # Let more answers arrive. A stop ends this pause as well.
            await occurs(stopping, within_s=_PACE_S)
            within_s = _LONGEST_SLEEP_S if next_in is None else next_in.total_seconds()
            await occurs(self._wake, within_s=max(0.0, min(within_s, _LONGEST_SLEEP_S) - _PACE_S))

    async def drain(self) -> timedelta | None:
        """Apply everything that is due; returns the time until the next answer is due, None if none waits."""
        # The service and the end of a run may drain at the same time; one of them works.
        async with self._turn:
            while len(batch := await self._database.read(_due, self._database.clock.now(), _BATCH)) > 0:
                await self._work_on([self._prepare(row) for row in batch])
            next_at = await self._database.read(_next_due)
        return None if next_at is None else max(timedelta(0), next_at - self._database.clock.now())

    async def settle(self, run_id: int) -> None:
        """Apply the answers of a run without unfinished jobs, so that none waits for its jobs."""
        await self._database.transaction(_release_waiting_of_run, run_id)
        await self.drain()

    def _prepare(self, row: Row[*tuple[Any, ...]]) -> PreparedRaw:
        raw: Any = row
        key, stage = (raw.host, raw.product_id), Stage(raw.stage)
        about = PreparedRaw(
            id=raw.id, run_id=raw.run_id, site=raw.site, key=key, shop_id=raw.shop_id, stage=stage, hash=raw.hash
        )
        try:
            # Reading happens outside of the transaction, so slow code of a site holds no locks.
            site, body = self._sites.get(raw.site), raws.unpack(raw.body)
            content = raws.as_text(site.extract(stage, raw.product_id, body))
        except Exception as error:  # the site's code is a plug-in: its errors concern this answer alone
            return msgspec.structs.replace(about, error=explain(error))
        return msgspec.structs.replace(about, content=content, hash=raws.digest(content.encode()))

    async def _work_on(self, batch: Sequence[PreparedRaw]) -> None:
        """Apply a batch; if one of its answers makes the transaction fail, apply each by itself."""
        try:
            _count(await self._database.transaction(apply, batch, self._patience))
        except Unavailable:
            raise
        except Exception as error:
            if len(batch) > 1:
                log.exception("crawl.batch_failed", raws=len(batch))
                for one in batch:
                    await self._work_on([one])
                return
            # Even the error of this answer cannot be written: nothing more can be done for it here.
            if batch[0].error is not None:
                raise
            log.exception("crawl.raw_refused", raw=batch[0].id)
            # The database refuses its content. Record that as a failed attempt; the last one makes a dead letter.
            await self._work_on([msgspec.structs.replace(batch[0], error=_named(error))])


def _due(tx: Transaction, now: datetime, limit: int) -> Sequence[Row[*tuple[Any, ...]]]:
    those = (_c.state == RawState.PENDING, _c.not_before <= now)
    columns = (_c.id, _c.run_id, _c.site, _c.host, _c.product_id, _c.shop_id, _c.stage, _c.hash, _c.body)
    return tx.execute(select(*columns).where(*those).order_by(_c.not_before, _c.id).limit(limit)).all()


def _next_due(tx: Transaction) -> datetime | None:
    return tx.execute(select(func.min(_c.not_before)).where(_c.state == RawState.PENDING)).scalar_one()


def _release_waiting_of_run(tx: Transaction, run_id: int) -> None:
    those = (_c.run_id == run_id, _c.state == RawState.PENDING, _c.waits_for.is_not(None))
    tx.execute(update(crawl_raws).where(*those).values(not_before=tx.now, waits_for=None))


def _count(tally: BatchTally) -> None:
    for outcome in BatchTally.__struct_fields__:
        if (count := getattr(tally, outcome)) > 0:
            CRAWL_RAWS.labels(outcome).inc(count)
    if tally.dead:
        log.error("crawl.raws_dead", raws=tally.dead)


def _named(error: Exception) -> str:
    said = words_of(error)
    return f"{type(said).__name__}: {said}"
