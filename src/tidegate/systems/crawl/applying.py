"""Applies stored answers to their products in one transaction, by the rules of `processing`."""

from collections.abc import Sequence

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.job_store import LONGEST_REASON
from tidegate.engine.lifecycle import UNFINISHED_JOBS, JobState
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.product_state import (
    WAITS_AT_MOST,
    AnswerOutcome,
    AppliedParts,
    Key,
    ProductRow,
    StoredAnswerState,
    jobs_before,
    known_parts,
    live_raws,
    lock_processing,
    lock_raws,
    release_waiting,
    write_outcomes,
    write_products,
)
from tidegate.systems.crawl.stages import STAGES, RawState, Stage, earlier, place_of

_UNFINISHED = frozenset(UNFINISHED_JOBS)
SUPERSEDED, UNCHANGED = "superseded", "unchanged"
"""Reasons why a PROCESSED answer changed nothing."""


class PreparedRaw(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A stored answer that was read, or the error of reading it."""

    id: int
    run_id: int
    site: str
    key: Key
    shop_id: str
    stage: Stage
    content: str = ""
    hash: str = ""
    error: str | None = None


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often applying an answer is attempted, and the pauses in between."""

    attempts: int
    pauses: Backoff


class BatchTally(msgspec.Struct):
    """The number of answers of a batch per outcome."""

    applied: int = 0
    unchanged: int = 0
    superseded: int = 0
    waiting: int = 0
    retried: int = 0
    dead: int = 0


def apply(tx: Transaction, batch: Sequence[PreparedRaw], retry_policy: RetryPolicy) -> BatchTally:
    """Apply the answers of a batch that can be applied, each once, and record why the others cannot."""
    # A leader that was frozen may wake up while its successor works. The second transaction waits here, and then reads
    # what the first has written.
    lock_processing(tx)
    return _Batch(tx, batch, retry_policy).work()


class _Product:
    """A product with the changes of this transaction."""

    def __init__(self, known: AppliedParts | None) -> None:
        self.raws: dict[Stage, int | None] = dict(known.raws) if known else dict.fromkeys(STAGES)
        self.hashes: dict[Stage, str | None] = dict(known.hashes) if known else dict.fromkeys(STAGES)
        self.missing = dict(known.missing) if known else {}
        self.applied = known.applied if known else 0
        self.contents: dict[Stage, str] = {}
        """The new contents by stage."""
        self.last: PreparedRaw | None = None
        """The last answer that changed it."""

    def row(self, one: PreparedRaw) -> ProductRow:
        """The row to write."""
        return ProductRow(
            one.key, one.shop_id, one.site, self.contents, self.hashes, self.raws, self.missing, self.applied
        )


class _Batch:
    """The answers of a batch, with the rows that decide their outcome."""

    def __init__(self, tx: Transaction, batch: Sequence[PreparedRaw], retry_policy: RetryPolicy) -> None:
        self._tx, self._retry_policy, self._tally = tx, retry_policy, BatchTally()
        # Locked first: a transaction that releases one of them waits for this one, and then sees that it waits.
        self._attempts = lock_raws(tx, [one.id for one in batch])
        ours = [one for one in batch if one.id in self._attempts]
        # By run, then by stage, so that earlier stages of this batch are applied first.
        self._batch = sorted(ours, key=lambda one: (one.key, one.run_id, place_of(one.stage), one.id))
        keys = sorted({one.key for one in ours})
        # Read after the locks: the answers of these products as they are now, also those outside the batch.
        self._live = live_raws(tx, keys)
        self._jobs = jobs_before(tx, [(one.run_id, one.stage, one.key) for one in ours])
        known = known_parts(tx, keys)
        self._products = {key: _Product(known.get(key)) for key in keys}
        self._outcomes: list[AnswerOutcome] = []

    def work(self) -> BatchTally:
        """Decide the outcome of each answer and write all changes."""
        for one in self._batch:
            self._decide(one)
        touched = [(product.last, product) for product in self._products.values()]
        write_products(self._tx, [product.row(one) for one, product in touched if one is not None])
        write_outcomes(self._tx, self._outcomes)
        self._release_waiting_answers()
        return self._tally

    def _decide(self, one: PreparedRaw) -> None:
        """Apply an answer, or record that it is superseded, waits for an earlier stage, or failed."""
        product = self._products[one.key]
        # Ids ascend with the time of storing, so an answer with a higher id was applied already.
        if one.id < (product.raws[one.stage] or 0):
            self._settle(one, RawState.PROCESSED, reason=SUPERSEDED)
            self._tally.superseded += 1
        # Waiting comes before the error: a failed attempt counts only when it is the turn of this answer.
        elif (first := self._has_to_wait(one)) is not None:
            again_at = self._tx.now + WAITS_AT_MOST
            self._outcomes.append(
                AnswerOutcome(one.id, RawState.PENDING, self._attempts[one.id], again_at, waits_for=first)
            )
            self._tally.waiting += 1
        elif one.error is not None:
            self._fail(one, one.error)
        else:
            self._apply(one, product)

    def _has_to_wait(self, one: PreparedRaw) -> Stage | None:
        """The earlier stage with an unfinished job of this run, or a pending answer of this run or an older one."""
        for stage in earlier(one.stage):
            if any(status in _UNFINISHED for status, _ in self._jobs.get((one.run_id, stage, one.key), ())):
                return stage
            if any(_is_pending(raw, stage) and raw.run_id <= one.run_id for raw in self._live.get(one.key, ())):
                return stage
        return None

    def _apply(self, one: PreparedRaw, product: _Product) -> None:
        # Also unchanged content is recorded: its id decides later which answers are superseded.
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

    def _missing(self, one: PreparedRaw, product: _Product) -> dict[str, str]:
        """Stages before this one that this run could not fetch, with reasons; later stages keep their reasons."""
        missing = {stage: why for stage, why in product.missing.items() if stage != one.stage}
        for stage in earlier(one.stage):
            missing.pop(stage, None)
            if (why := self._why_missing(one, stage, product.raws[stage] or 0)) is not None:
                missing[stage.value] = why
        return missing

    def _why_missing(self, one: PreparedRaw, stage: Stage, applied: int) -> str | None:
        jobs = self._jobs.get((one.run_id, stage, one.key), ())
        failed = [why for status, why in jobs if status != JobState.SUCCEEDED]
        dead = [
            raw.reason or "no reason was given"
            for raw in self._live.get(one.key, ())
            if raw.state is RawState.FAILED and raw.stage is stage and raw.id > applied
        ]
        # The last failure of this run says most; a dead letter of an earlier run counts if nothing newer was applied.
        return next(reversed(failed), None) or next(iter(dead), None)

    def _fail(self, one: PreparedRaw, why: str) -> None:
        attempts, reason = self._attempts[one.id] + 1, fit_to_keep(why, most=LONGEST_REASON)
        self._attempts[one.id] = attempts
        if attempts >= self._retry_policy.attempts:
            self._settle(one, RawState.FAILED, reason=reason)
            self._tally.dead += 1
            product = self._products[one.key]
            if any(product.raws.values()):  # the run may have ended, so its finalizer does not record this
                product.missing[one.stage.value] = reason
                product.last = product.last or one
            return
        again_at = self._tx.now + self._retry_policy.pauses.delay(attempts)
        self._outcomes.append(AnswerOutcome(one.id, RawState.PENDING, attempts, again_at, reason=reason))
        self._tally.retried += 1

    def _settle(
        self, one: PreparedRaw, state: RawState, *, reason: str | None = None, applied_as: int | None = None
    ) -> None:
        """Record the final outcome of an answer, so that no other answer waits for it."""
        attempts = self._attempts[one.id]
        self._outcomes.append(
            AnswerOutcome(one.id, state, attempts, self._tx.now, reason=reason, applied_as=applied_as)
        )
        # Later answers of this batch are decided by the state after this one.
        others = [raw for raw in self._live[one.key] if raw.id != one.id]
        if state is RawState.FAILED:
            others.append(StoredAnswerState(one.id, one.run_id, one.stage, one.hash, state, waits=False, reason=reason))
        self._live[one.key] = others

    def _release_waiting_answers(self) -> None:
        """Release answers outside this batch that wait for an answer with an outcome that is final now."""
        ours = {one.id for one in self._batch}
        pending = {raw.id for live in self._live.values() for raw in live if raw.state is RawState.PENDING}
        over = {one.key for one in self._batch if one.id not in pending}
        # Answers of this batch that wait were decided above, after the ones they wait for.
        freed = [raw.id for key in over for raw in self._live[key] if raw.waits and raw.id in pending - ours]
        if freed:
            release_waiting(self._tx, freed)


def _is_pending(raw: StoredAnswerState, stage: Stage) -> bool:
    return raw.state is RawState.PENDING and raw.stage is stage
