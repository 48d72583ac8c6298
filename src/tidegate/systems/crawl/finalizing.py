"""Completes a run of a crawl: applies its answers, and records missing parts and vanished products.

It can be repeated for the same run after a failure or a crash.

A product is gone when no crawl lists it any more. This is decided only by a complete run: all its searches succeeded,
ended before the page limit, and skipped no product. A product that is listed again is no longer gone.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, exists, select, update

from tidegate.engine.lifecycle import JobState
from tidegate.engine.runs import Run
from tidegate.engine.tables import collection_runs, page_jobs
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.statements import Statement
from tidegate.systems.crawl import SOURCE
from tidegate.systems.crawl.processing import RawProcessor
from tidegate.systems.crawl.product_state import AppliedParts, Key, known_parts, lock_processing, missing_text
from tidegate.systems.crawl.stages import SEARCH, STAGES, RawState, Stage
from tidegate.systems.crawl.tables import crawl_products, crawl_raws, crawl_sightings
from tidegate.systems.crawl.targets import CrawlOptions

_AT_ONCE = 1_000
_LACKING = (JobState.FAILED, JobState.UNAVAILABLE, JobState.CANCELED)
_job, _product, _raw, _sighting = page_jobs.c, crawl_products.c, crawl_raws.c, crawl_sightings.c
_run = collection_runs.c


class CrawlFinalizer:
    """A `Finalizer` for runs of crawls; ignores other sources."""

    def __init__(self, database: Database, processor: RawProcessor) -> None:
        self._database, self._processor = database, processor

    async def finalize(self, run: Run) -> None:
        """Apply the stored answers of the run, then record missing parts and vanished products."""
        if run.source != SOURCE:
            return
        await self._processor.settle(run.id)
        if await self._database.read(_has_newer_run, run):  # the newer run records what is missing now
            return
        await self._record_missing(run)
        await self._database.transaction(_notice_gone, run)

    async def _record_missing(self, run: Run) -> None:
        """Record for each product which stages (parts of its data) the run could not fetch, in batches."""
        # The third query finds products with reasons that are obsolete now.
        for find in (_with_failed_jobs, _with_dead_raws, _with_lacks):
            after: Any = None
            while True:
                some = await self._database.transaction(_record_some_missing, run, find, after)
                if len(some) < _AT_ONCE:
                    break
                after = some[-1][0]


def _has_newer_run(tx: Transaction, run: Run) -> bool:
    newer = (_run.source == run.source, _run.user_id == run.user_id, _run.id > run.id)
    return tx.execute(select(_run.id).where(*newer).limit(1)).first() is not None


_Some = Sequence[tuple[Any, str]]
"""Products, each with the key after which the next batch starts."""


def _record_some_missing(
    tx: Transaction, run: Run, find: Callable[[Transaction, Run, Any], _Some], after: Any
) -> _Some:
    lock_processing(tx)
    some = find(tx, run, after)
    products = sorted({product_id for _, product_id in some})
    keys = [(run.login, product_id) for product_id in products]
    known = known_parts(tx, keys)
    reasons = _reasons(tx, run, products, known) if products else {}
    changed = [
        (*key, missing_text(reasons.get(key, {})))
        for key in keys
        if key in known and known[key].missing != reasons.get(key, {})
    ]
    if changed:
        _NOTE.run(tx, given=changed)
    return some


def _with_failed_jobs(tx: Transaction, run: Run, after: int | None) -> _Some:
    """Products of which this run failed to fetch a part."""
    those = (_job.run_id == run.id, _job.end_state.in_(_LACKING), _job.job_type.in_(STAGES), _job.id > (after or 0))
    found = tx.execute(select(_job.id, _job.resource_key).where(*those).order_by(_job.id).limit(_AT_ONCE))
    return [(job_id, resource[len(run.login) + 1 :]) for job_id, resource in found]


def _with_dead_raws(tx: Transaction, run: Run, after: int | None) -> _Some:
    """Products with a dead letter of this run."""
    those = (_raw.run_id == run.id, _raw.state == RawState.FAILED, _raw.stage != SEARCH, _raw.id > (after or 0))
    return list(tx.execute(select(_raw.id, _raw.product_id).where(*those).order_by(_raw.id).limit(_AT_ONCE)))


def _with_lacks(tx: Transaction, run: Run, after: str | None) -> _Some:
    """Products that this run saw and that have missing stages recorded."""
    seen = exists().where(
        *(_sighting.host == _product.host, _sighting.product_id == _product.product_id),
        *(_sighting.crawl == run.user_id, _sighting.last_run_id == run.id),
    )
    those = (_product.host == run.login, _product.product_id > (after or ""), _product.missing.is_not(None), seen)
    found = select(_product.product_id).where(*those).order_by(_product.product_id).limit(_AT_ONCE)
    return [(product_id, product_id) for product_id in tx.execute(found).scalars()]


def _reasons(
    tx: Transaction, run: Run, products: Sequence[str], known: Mapping[Key, AppliedParts]
) -> dict[Key, dict[str, str]]:
    """Stages that this run could not fetch, with reasons; a dead letter counts until something newer is applied."""
    host, reasons = run.login, defaultdict[Key, dict[str, str]](dict)
    dead = select(_raw.product_id, _raw.stage, _raw.reason, _raw.id).where(
        _raw.host == host, _raw.product_id.in_(products), _raw.state == RawState.FAILED, _raw.stage != SEARCH
    )
    for product_id, stage, why, raw_id in tx.execute(dead.order_by(_raw.id)):
        part = known.get((host, product_id))
        # A dead letter older than the applied answer is obsolete.
        if part is None or raw_id > (part.raws[Stage(stage)] or 0):
            reasons[host, product_id][stage] = why or "no reason was given"
    resources = {f"{host}/{product_id}": product_id for product_id in products}
    jobs = select(_job.resource_key, _job.job_type, _job.last_error, _job.status).where(
        _job.run_id == run.id, _job.job_type.in_(STAGES), _job.end_state.in_(_LACKING), _job.resource_key.in_(resources)
    )
    for resource, stage, why, status in tx.execute(jobs.order_by(_job.id)):
        reasons[host, resources[resource]][stage] = why or status
    return reasons


def _notice_gone(tx: Transaction, run: Run) -> None:
    lock_processing(tx)
    listed = exists().where(_sighting.host == _product.host, _sighting.product_id == _product.product_id)
    here = _product.host == run.login
    # Before the check of completeness: also an incomplete run may say that a product is listed again.
    back = update(crawl_products).where(here, _product.gone_at.is_not(None), listed)
    tx.execute(back.values(gone_at=None, changed_at=tx.now))
    if not run.skipped_items and _has_seen_everything(tx, run):
        # A complete run replaces what this crawl saw before. Other crawls keep their sightings,
        # and with them the products.
        lost = (_sighting.host == run.login, _sighting.crawl == run.user_id, _sighting.last_run_id < run.id)
        tx.execute(delete(crawl_sightings).where(*lost))
        gone = update(crawl_products).where(here, _product.gone_at.is_(None), ~listed)
        tx.execute(gone.values(gone_at=tx.now, changed_at=tx.now))


def _has_seen_everything(tx: Transaction, run: Run) -> bool:
    """Whether no search failed and none reached its last allowed page, after which there may be more products."""
    # The resource of a search ends with the number of its page; see `targets._search`.
    last_page = _job.resource_key.like(f"%&{CrawlOptions.of(run.options).pages}")
    unsure = (_job.run_id == run.id, _job.job_type == SEARCH, (_job.status != JobState.SUCCEEDED) | last_page)
    return tx.execute(select(_job.id).where(*unsure).limit(1)).first() is None


_NOTED = ":given(host text, product_id text, reasons text)"
_SAME = "crawl_products.host = given.host AND crawl_products.product_id = given.product_id"
_FROM_NOTED = f"UPDATE crawl_products SET missing = given.reasons FROM {_NOTED} WHERE {_SAME}"  # noqa: S608
_NOTE = Statement(
    {
        "sqlite": _FROM_NOTED,
        "postgresql": _FROM_NOTED,
        "mysql": f"UPDATE crawl_products JOIN {_NOTED} ON {_SAME} SET missing = given.reasons",  # noqa: S608
    }
)
