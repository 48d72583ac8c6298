"""Writes the results of crawl jobs: new answers, follow-ups and sightings of products.

Everything is part of the transaction that ends the jobs, under their fencing tokens. So:

- A job's row, its answer and its follow-ups are stored together or not at all. A job has one answer at most.
- A job that failed although it had an answer (the site's code failed, or crashed every worker that ran it) leaves that
  answer as a dead letter.
- Search pages are stored too: as PROCESSED, since their follow-ups are written with them, or as dead letters.
- Known content is not stored: an answer with the content of the product, and with nothing newer pending, writes
  nothing.
- An answer that waits for an earlier stage is released by the transaction that ends the last job of that stage.

If the process dies

- before the answer is parked (`CallRoute.keeps_answers`): nothing is stored. The job is taken over and called again;
- after that and before the commit: the process that takes the job over reads the parked answer, without a call;
- after the commit and before the wake-up: the answers are PENDING. The death of the process is detected, and then the
  leader looks for them (`on_death`); a new leader does so too.

If two transactions miss each other (one ends the MINI_SHOP of a product while another one adds its DETAIL), the DETAIL
is released when the MINI_SHOP is applied, by the end of the run, or after `WAITS_AT_MOST`.

"Not modified" (304) is accepted while the content that it refers to is stored. If another crawl has stored other
content since, or the product was deleted, the validators are deleted, and the next run fetches the whole page.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import delete

from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.cursors import CursorChange, move_cursors
from tidegate.engine.job_store import LONGEST_REASON, JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.source import Cursor
from tidegate.engine.upstream import Answer
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement, parts
from tidegate.systems.crawl import raws
from tidegate.systems.crawl.metrics import CRAWL_PAGES, CRAWL_RAWS
from tidegate.systems.crawl.product_state import (
    AppliedParts,
    Key,
    StoredAnswerState,
    known_parts,
    live_raws,
    release_waiting,
)
from tidegate.systems.crawl.source import ListedProducts, NewRaw, UnchangedContent
from tidegate.systems.crawl.stages import PageKind, RawState, Stage, place_of, stage_of
from tidegate.systems.crawl.tables import crawl_raws
from tidegate.systems.crawl.targets import Target, name_in

log = get_logger(__name__)

RAWS_STORED = "crawl.raws"
"""Topic of transactions that leave work for the processor."""


def _nothing(tx: Transaction, endings: Sequence[JobResult]) -> None:
    del tx, endings


class _Ended(NamedTuple):
    """An ended job that fetched a part of a product."""

    key: Key
    stage: Stage
    ending: JobResult


class CrawlWriter:
    """The `EffectWriter` of crawls. `note` receives all results too, to record refusals of identities and hosts."""

    def __init__(self, note: Callable[[Transaction, Sequence[JobResult]], object] = _nothing) -> None:
        self._note = note

    def write(self, tx: Transaction, endings: Sequence[JobResult]) -> None:
        """Write the effects of these results."""
        # First: a job has one answer at most, so its dead letter must be gone before a new one is inserted.
        _replace_dead(tx, endings)
        ended = [_Ended(key, stage, ending) for ending in endings for key, stage in _part_of(ending)]
        if ended:
            _write_parts(tx, ended)
        _write_closed(tx, endings)
        _write_sightings(tx, endings)
        # In the same transaction: the health of an identity and the end of the job agree after a crash.
        self._note(tx, endings)


def _part_of(ending: JobResult) -> Iterator[tuple[Key, Stage]]:
    spec = ending.claim.job.spec
    stage = stage_of(spec.kind)
    if stage is not None and ending.state is not JobState.READY:
        yield (spec.bucket, name_in(spec)), stage


def _write_parts(tx: Transaction, ended: Sequence[_Ended]) -> None:
    """Store the answers of ended jobs, and release answers that waited for their stages."""
    keys = sorted({one.key for one in ended})
    # In this order: an answer that is applied between the two reads is seen as a part, otherwise as pending.
    live, known = live_raws(tx, keys), known_parts(tx, keys)
    news, equal, stale = list[dict[str, Any]](), 0, list[_Ended]()
    confirmed = 0
    for one in ended:
        for effect in one.ending.effects:
            mine = [raw for raw in live.get(one.key, ()) if raw.stage is one.stage]
            match effect:
                case NewRaw() if _is_known(effect.hash, one.stage, known.get(one.key), mine):
                    equal += 1
                case NewRaw():
                    news.append(_row(tx, one.ending, effect))
                case UnchangedContent():
                    confirmed += 1
                    if not _is_stored(effect.hash, one.stage, known.get(one.key), mine):
                        stale.append(one)
                case _:
                    pass
    _insert(tx, news)
    _forget_validators(tx, stale)
    # Released also when the job failed: its stage is skipped then.
    freed = _freed(ended, live)
    if freed:
        release_waiting(tx, freed)
    if news or freed:
        tx.announce(RAWS_STORED)
    # Counted after the commit: a transaction that is repeated must not count twice.
    tx.after_commit(lambda: _count(stored=len(news), equal=equal, not_modified=confirmed))


def _is_known(content_hash: str, stage: Stage, known: AppliedParts | None, mine: Sequence[StoredAnswerState]) -> bool:
    """Whether the product has this content, or will have it when the pending answers are applied."""
    # What the product will say when everything pending is applied. Comparing with the applied content alone would drop
    # a change back to it.
    newest = max(mine, key=lambda raw: raw.id, default=None)
    if newest is None or (known is not None and newest.id < (known.raw_of(stage) or 0)):
        return known is not None and known.hash_of(stage) == content_hash
    # A dead letter as the newest answer is not known content: the page is stored again, and may be readable now.
    return newest.state is RawState.PENDING and newest.hash == content_hash


def _is_stored(content_hash: str, stage: Stage, known: AppliedParts | None, mine: Sequence[StoredAnswerState]) -> bool:
    """Whether the content with this hash is stored: applied, pending, or a dead letter."""
    if known is not None and known.hash_of(stage) == content_hash:
        return True
    return any(raw.hash == content_hash for raw in mine)


def _freed(ended: Sequence[_Ended], live: dict[Key, list[StoredAnswerState]]) -> list[int]:
    """Answers that may have waited for a job that ended. Whether they did is checked under their locks."""
    return [
        raw.id
        for one in ended
        for raw in live.get(one.key, ())
        if raw.state is RawState.PENDING
        and raw.run_id == one.ending.claim.job.run_id
        and place_of(raw.stage) > place_of(one.stage)
    ]


def _row(tx: Transaction, ending: JobResult, raw: NewRaw) -> dict[str, Any]:
    """Return the row of a new answer."""
    state = RawState.PENDING if raw.stage is not PageKind.SEARCH else RawState.PROCESSED
    if raw.error is not None:
        state = RawState.FAILED
    return {
        "run_id": ending.claim.job.run_id,
        "job_id": ending.claim.job.id,
        "site": raw.site,
        "host": raw.host,
        "product_id": raw.product_id,
        "shop_id": raw.shop_id,
        "stage": raw.stage.value,
        "hash": raw.hash,
        "body": raw.body,
        "received_at": tx.now,
        "state": state.value,
        "attempts": 0 if raw.error is None else ending.claim.attempt,
        "not_before": tx.now,
        "reason": None if raw.error is None else fit_to_keep(raw.error, most=LONGEST_REASON),
        "processed_at": None if state is RawState.PENDING else tx.now,
    }


def _write_closed(tx: Transaction, endings: Sequence[JobResult]) -> None:
    """Store answers that need no processing: search pages, and answers with which their jobs failed."""
    closed = [(ending, raw) for ending in endings for raw in (*_pages_of_searches(ending), *_abandoned(ending))]
    _insert(tx, [_row(tx, ending, raw) for ending, raw in closed])
    dead = sum(raw.error is not None for _, raw in closed)
    if dead:
        tx.after_commit(partial(_report_dead, dead))


def _pages_of_searches(ending: JobResult) -> Iterator[NewRaw]:
    for effect in ending.effects:
        if isinstance(effect, NewRaw) and effect.stage is PageKind.SEARCH:
            yield effect


def _abandoned(ending: JobResult) -> Iterator[NewRaw]:
    """The answer of a job that failed although it had one: reading it failed, or crashed every worker that tried."""
    claim, spec = ending.claim, ending.claim.job.spec
    # Without effects, no answer of this job is stored by the functions above.
    if ending.state is JobState.FAILED and claim.parked is not None and not ending.effects:
        target, body = Target.of(spec), Answer.unpack(claim.parked.answer).body
        yield NewRaw(
            site=target.site,
            host=spec.bucket,
            product_id=name_in(spec),
            shop_id=target.shop,
            stage=PageKind(spec.kind),
            hash=raws.digest(body),
            body=raws.pack(body),
            error=ending.reason,
        )


def _replace_dead(tx: Transaction, endings: Sequence[JobResult]) -> None:
    """Delete the dead letters of jobs that end again."""
    # The first claim of a job cannot have a dead letter, which saves the query in most rounds.
    again = [each.claim.job.id for each in endings if each.claim.fence > 1 and each.state is not JobState.READY]
    if again:
        those = (crawl_raws.c.job_id.in_(sorted(again)), crawl_raws.c.state == RawState.FAILED)
        tx.execute(delete(crawl_raws).where(*those))


def _insert(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    for part in parts(rows, lambda row: len(row["body"])):
        tx.insert_many(crawl_raws, part)


def _forget_validators(tx: Transaction, stale: Sequence[_Ended]) -> None:
    claims = [one.ending.claim for one in stale]
    if claims:
        move_cursors(
            tx,
            [CursorChange(claim.source, claim.user_id, claim.job.run_id, claim.job.spec, Cursor()) for claim in claims],
        )


def _write_sightings(tx: Transaction, endings: Sequence[JobResult]) -> None:
    rows = {
        (effect.host, found.product_id, ending.claim.user_id): ending.claim.job.run_id
        for ending in endings
        for effect in ending.effects
        if isinstance(effect, ListedProducts)
        for found in effect.products
    }
    # Sorted, so that concurrent writers lock the rows in the same order.
    for part in parts([(*key, rows[key]) for key in sorted(rows)], lambda row: len(row[1])):
        _SIGHT.run(tx, given=part)


def _report_dead(raws: int) -> None:
    CRAWL_RAWS.labels("dead").inc(raws)
    log.error("crawl.raws_dead", raws=raws)


def _count(**pages: int) -> None:
    for outcome, count in pages.items():
        if count:
            CRAWL_PAGES.labels(outcome).inc(count)


_INSERT = "INSERT INTO crawl_sightings (host, product_id, crawl, last_run_id)"
_GIVEN = """
SELECT given.host, given.product_id, given.crawl, given.run_id
FROM :given(host key, product_id key, crawl key, run_id number)"""
_NEWEST = "last_run_id = {greatest}(crawl_sightings.last_run_id, excluded.last_run_id)"
_CONFLICT = "ON CONFLICT (host, product_id, crawl) DO UPDATE SET"
_SIGHT = Statement(
    {
        # Without a WHERE, SQLite would take ON for the beginning of a join's condition.
        "sqlite": f"{_INSERT} {_GIVEN} WHERE true {_CONFLICT} {_NEWEST.format(greatest='max')}",
        "postgresql": f"{_INSERT} {_GIVEN} {_CONFLICT} {_NEWEST.format(greatest='greatest')}",
        "mysql": f"""
{_INSERT} {_GIVEN} ON DUPLICATE KEY UPDATE last_run_id = greatest(crawl_sightings.last_run_id, VALUES(last_run_id))""",
    }
)
