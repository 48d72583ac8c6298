"""One transaction that applies answers to their products: the rules of `processing.py`, and nothing else."""

from collections.abc import Sequence

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.job_store import LONGEST_REASON
from tidegate.engine.lifecycle import UNFINISHED_JOBS, JobState
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.live import WAITS_AT_MOST, Key, Live, Parts, known_parts, let_go, live_raws
from tidegate.systems.crawl.outcomes import Outcome, ProductRow, jobs_before, lock_raws, write_outcomes, write_products
from tidegate.systems.crawl.raw_states import RawState
from tidegate.systems.crawl.stages import STAGES, Stage, earlier, place_of
from tidegate.systems.crawl.turns import take_turn

_UNFINISHED = frozenset(UNFINISHED_JOBS)
SUPERSEDED, UNCHANGED = "superseded", "unchanged"
"""Why an answer that is PROCESSED was not applied."""


class Prepared(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An answer that was read, or could not be."""

    id: int
    run_id: int
    site: str
    key: Key
    shop_id: str
    stage: Stage
    content: str = ""
    hash: str = ""
    error: str | None = None


class Patience(msgspec.Struct, frozen=True):
    """How often an answer is tried, and how far apart."""

    attempts: int
    pauses: Backoff


class Tally(msgspec.Struct):
    """What became of a batch."""

    applied: int = 0
    unchanged: int = 0
    superseded: int = 0
    waiting: int = 0
    retried: int = 0
    dead: int = 0


def apply(tx: Transaction, batch: Sequence[Prepared], patience: Patience) -> Tally:
    """Apply what may be applied of a batch, each answer once; say of each of the others why not."""
    take_turn(tx)
    return _Batch(tx, batch, patience).work()


class _Product:
    """A product as this transaction changes it."""

    def __init__(self, known: Parts | None) -> None:
        self.raws: dict[Stage, int | None] = dict(known.raws) if known else dict.fromkeys(STAGES)
        self.hashes: dict[Stage, str | None] = dict(known.hashes) if known else dict.fromkeys(STAGES)
        self.missing = dict(known.missing) if known else {}
        self.applied = known.applied if known else 0
        self.contents: dict[Stage, str] = {}
        """What is new."""
        self.last: Prepared | None = None
        """Whoever touched it last."""

    def row(self, one: Prepared) -> ProductRow:
        """As it is to be written."""
        return ProductRow(
            one.key, one.shop_id, one.site, self.contents, self.hashes, self.raws, self.missing, self.applied
        )


class _Batch:
    """Answers, and everything that decides what becomes of them."""

    def __init__(self, tx: Transaction, batch: Sequence[Prepared], patience: Patience) -> None:
        self._tx, self._patience, self._tally = tx, patience, Tally()
        # Locked first: who wants to let one of them go waits for us, and finds out that it waits.
        self._attempts = lock_raws(tx, [one.id for one in batch])
        ours = [one for one in batch if one.id in self._attempts]
        # By run, then by stage: what has to come first in this batch does.
        self._batch = sorted(ours, key=lambda one: (one.key, one.run_id, place_of(one.stage), one.id))
        keys = sorted({one.key for one in ours})
        self._live = live_raws(tx, keys)
        self._jobs = jobs_before(tx, [(one.run_id, one.stage, one.key) for one in ours])
        known = known_parts(tx, keys)
        self._products = {key: _Product(known.get(key)) for key in keys}
        self._outcomes: list[Outcome] = []

    def work(self) -> Tally:
        """Decide on each, and write it all."""
        for one in self._batch:
            self._decide(one)
        touched = [(product.last, product) for product in self._products.values()]
        write_products(self._tx, [product.row(one) for one, product in touched if one is not None])
        write_outcomes(self._tx, self._outcomes)
        self._free_others()
        return self._tally

    def _decide(self, one: Prepared) -> None:
        product = self._products[one.key]
        if one.id < (product.raws[one.stage] or 0):
            self._settle(one, RawState.PROCESSED, reason=SUPERSEDED)
            self._tally.superseded += 1
        elif (first := self._has_to_wait(one)) is not None:
            again_at = self._tx.now + WAITS_AT_MOST
            self._outcomes.append(Outcome(one.id, RawState.PENDING, self._attempts[one.id], again_at, waits_for=first))
            self._tally.waiting += 1
        elif one.error is not None:
            self._fail(one, one.error)
        else:
            self._apply(one, product)

    def _has_to_wait(self, one: Prepared) -> Stage | None:
        """The earlier stage that is under way in this run, or of which an answer of this or an older run is."""
        for stage in earlier(one.stage):
            if any(status in _UNFINISHED for status, _ in self._jobs.get((one.run_id, stage, one.key), ())):
                return stage
            if any(_is_pending(raw, stage) and raw.run_id <= one.run_id for raw in self._live.get(one.key, ())):
                return stage
        return None

    def _apply(self, one: Prepared, product: _Product) -> None:
        product.last = one
        product.raws[one.stage] = one.id
        product.missing = self._missing(one, product)
        if product.hashes[one.stage] == one.hash:
            self._settle(one, RawState.PROCESSED, reason=UNCHANGED)
            self._tally.unchanged += 1
            return
        product.hashes[one.stage], product.contents[one.stage] = one.hash, one.content
        product.applied += 1
        self._settle(one, RawState.PROCESSED, applied_as=product.applied)
        self._tally.applied += 1

    def _missing(self, one: Prepared, product: _Product) -> dict[str, str]:
        """What this run could not get of the stages before it; of those after it, what was known."""
        missing = {stage: why for stage, why in product.missing.items() if stage != one.stage}
        for stage in earlier(one.stage):
            missing.pop(stage, None)
            if (why := self._why_missing(one, stage, product.raws[stage] or 0)) is not None:
                missing[stage.value] = why
        return missing

    def _why_missing(self, one: Prepared, stage: Stage, applied: int) -> str | None:
        jobs = self._jobs.get((one.run_id, stage, one.key), ())
        failed = [why for status, why in jobs if status != JobState.SUCCEEDED]
        dead = [
            raw.reason or "no reason was given"
            for raw in self._live.get(one.key, ())
            if raw.state is RawState.FAILED and raw.stage is stage and raw.id > applied
        ]
        return next(reversed(failed), None) or next(iter(dead), None)

    def _fail(self, one: Prepared, why: str) -> None:
        attempts, reason = self._attempts[one.id] + 1, fit_to_keep(why, most=LONGEST_REASON)
        self._attempts[one.id] = attempts
        if attempts >= self._patience.attempts:
            self._settle(one, RawState.FAILED, reason=reason)
            self._tally.dead += 1
            product = self._products[one.key]
            if any(product.raws.values()):  # its run may be over, and nobody else would say so
                product.missing[one.stage.value] = reason
                product.last = product.last or one
            return
        again_at = self._tx.now + self._patience.pauses.delay(attempts)
        self._outcomes.append(Outcome(one.id, RawState.PENDING, attempts, again_at, reason=reason))
        self._tally.retried += 1

    def _settle(
        self, one: Prepared, state: RawState, *, reason: str | None = None, applied_as: int | None = None
    ) -> None:
        """It is over with this answer: nobody has to wait for it any more."""
        attempts = self._attempts[one.id]
        self._outcomes.append(Outcome(one.id, state, attempts, self._tx.now, reason=reason, applied_as=applied_as))
        others = [raw for raw in self._live[one.key] if raw.id != one.id]
        if state is RawState.FAILED:
            others.append(Live(one.id, one.run_id, one.stage, one.hash, state, waits=False, reason=reason))
        self._live[one.key] = others

    def _free_others(self) -> None:
        """Let go what waits for answers of which some are over now, and is not in this batch itself."""
        ours = {one.id for one in self._batch}
        pending = {raw.id for live in self._live.values() for raw in live if raw.state is RawState.PENDING}
        over = {one.key for one in self._batch if one.id not in pending}
        freed = [raw.id for key in over for raw in self._live[key] if raw.waits and raw.id in pending - ours]
        if freed:
            let_go(self._tx, freed)


def _is_pending(raw: Live, stage: Stage) -> bool:
    return raw.state is RawState.PENDING and raw.stage is stage
