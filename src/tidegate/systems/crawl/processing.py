"""Makes products of kept answers: a duty of the leader. The rows that are PENDING are its queue.

What holds at every moment, whoever dies:

- **Order.** An answer about a stage is applied when no earlier stage of its product is under way: no job of the same
  run that is unfinished, no answer of the same or an older run that is PENDING. Stages that ended without an answer
  (failed, not there, dead letter) are passed over, and the product says which and why (`missing`).
- **Once.** What an answer changes and that it is PROCESSED are one transaction; it begins by locking the answers that
  are still PENDING. So an answer is applied never or once, and counted on its product (`applied`, `applied_as`).
- **Newest.** Of one stage the answer with the highest number counts; an older one is PROCESSED as superseded.
- **Nobody is held up.** An answer that cannot be applied waits for its next try; after so many it is FAILED, a dead
  letter with its reason, until somebody replays it. Only later stages of the same product and run wait for it.

If we die

- between reading and the commit: the answers are PENDING as before, and whoever leads next applies them;
- during the commit: it happened, and they are PROCESSED, or it did not, and they are PENDING;
- while an answer waits for its next try, or for an earlier stage: that is in its row. A leader that begins reads all
  that is due, and sleeps until the next one is.

Rings come from every transaction that leaves something to do (`writing.RAWS_STORED`), from the death of a process
(it may have died between its commit and its ring) and from a replay. A ring more does no harm, and one that is lost
costs at most `WAITS_AT_MOST` where an answer waits.
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
from tidegate.core.telemetry.metrics import CRAWL_RAWS
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, occurs
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.faults import words_of
from tidegate.systems.crawl import bodies
from tidegate.systems.crawl.applying import Patience, Prepared, Tally, apply
from tidegate.systems.crawl.raw_states import RawState
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.site import Sites, explain
from tidegate.systems.crawl.stages import Stage
from tidegate.systems.crawl.tables import crawl_raws
from tidegate.systems.crawl.writing import RAWS_STORED

log = get_logger(__name__)

_BATCH = 200
_PACE_S = 0.05
"""Between the beginnings of two looks: one costs much the same for one answer as for many."""
_LONGEST_SLEEP_S = 3_600.0
_c = crawl_raws.c


class RawProcessor:
    """See the module's promise."""

    def __init__(self, database: Database, sites: Sites, settings: CrawlSettings) -> None:
        self._database, self._sites = database, sites
        self._patience = Patience(settings.raw_attempts, settings.raw_pauses)
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._outage = Outage("crawl.raws")
        self.is_running = False
        """Whether this process applies answers: then nobody else has to be told of new ones."""

    def notify(self) -> None:
        """There may be something to do. From the event loop only; many rings are one."""
        self._wake.set()

    async def run(self, stopping: asyncio.Event) -> None:
        """Apply what is due, now and whenever something comes to be, until told to stop."""
        silence = self._database.subscribe(RAWS_STORED, self.notify)
        waking = asyncio.create_task(stopping.wait(), name="wake the processor to stop")
        waking.add_done_callback(lambda _: self._wake.set())
        self.is_running = True
        try:
            with suppress(Unavailable):  # stopped during an outage: what is pending stays so, for the next leader
                await self._keep_draining(stopping)
        finally:
            self.is_running = False
            silence()
            await end(waking)

    async def _keep_draining(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self._wake.clear()
            next_in = await self._outage.retry(self.drain, stopping=stopping)
            await occurs(stopping, within_s=_PACE_S)
            within_s = _LONGEST_SLEEP_S if next_in is None else next_in.total_seconds()
            await occurs(self._wake, within_s=max(0.0, min(within_s, _LONGEST_SLEEP_S) - _PACE_S))

    async def drain(self) -> timedelta | None:
        """Apply everything that is due; return when the next is, None where nothing waits for a moment."""
        async with self._turn:
            while len(batch := await self._database.read(_due, self._database.clock.now(), _BATCH)) > 0:
                await self._work_on([self._prepare(row) for row in batch])
            next_at = await self._database.read(_next_due)
        return None if next_at is None else max(timedelta(0), next_at - self._database.clock.now())

    async def settle(self, run_id: int) -> None:
        """Apply what can be applied of a run that has no job left: nothing waits for its jobs any more."""
        await self._database.transaction(_let_go_of_run, run_id)
        await self.drain()

    def _prepare(self, row: Row[*tuple[Any, ...]]) -> Prepared:
        raw: Any = row
        key, stage = (raw.host, raw.product_id), Stage(raw.stage)
        about = Prepared(
            id=raw.id, run_id=raw.run_id, site=raw.site, key=key, shop_id=raw.shop_id, stage=stage, hash=raw.hash
        )
        try:
            site, body = self._sites.get(raw.site), bodies.unpack(raw.body)
            content = bodies.as_text(site.extract(stage, raw.product_id, body))
        except Exception as error:  # the site's code is the user's: whatever it raises is about this answer alone
            return msgspec.structs.replace(about, error=explain(error))
        return msgspec.structs.replace(about, content=content, hash=bodies.digest(content.encode()))

    async def _work_on(self, batch: Sequence[Prepared]) -> None:
        """Together; if that fails for a reason that lies in one of them, each by itself."""
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
            if batch[0].error is not None:
                raise
            log.exception("crawl.raw_refused", raw=batch[0].id)
            await self._work_on([msgspec.structs.replace(batch[0], error=_named(error))])


def _due(tx: Transaction, now: datetime, limit: int) -> Sequence[Row[*tuple[Any, ...]]]:
    those = (_c.state == RawState.PENDING, _c.not_before <= now)
    columns = (_c.id, _c.run_id, _c.site, _c.host, _c.product_id, _c.shop_id, _c.stage, _c.hash, _c.body)
    return tx.execute(select(*columns).where(*those).order_by(_c.not_before, _c.id).limit(limit)).all()


def _next_due(tx: Transaction) -> datetime | None:
    return tx.execute(select(func.min(_c.not_before)).where(_c.state == RawState.PENDING)).scalar_one()


def _let_go_of_run(tx: Transaction, run_id: int) -> None:
    those = (_c.run_id == run_id, _c.state == RawState.PENDING, _c.waits_for.is_not(None))
    tx.execute(update(crawl_raws).where(*those).values(not_before=tx.now, waits_for=None))


def _count(tally: Tally) -> None:
    for outcome in Tally.__struct_fields__:
        if (count := getattr(tally, outcome)) > 0:
            CRAWL_RAWS.labels(outcome).inc(count)
    if tally.dead:
        log.error("crawl.raws_dead", raws=tally.dead)


def _named(error: Exception) -> str:
    said = words_of(error)
    return f"{type(said).__name__}: {said}"
