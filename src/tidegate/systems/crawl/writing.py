"""What a round of a crawl leaves in SQL: answers with something new in them, and who lists which product.

All of it is in the transaction that ends the jobs, under their fences. So:

- The job's row, its answer and its follow-ups are there together or not at all. A job leaves one answer at most.
- A job that failed with an answer in hand (the site's code failed, or took down every worker that ran it) leaves that
  answer as a dead letter.
- Pages of searches are kept too, as PROCESSED, since what they led to is written with them; or as dead letters.
- What is known already is not kept: an answer that says what the product says, with nothing newer on the way, writes
  nothing at all.
- An answer that waits for an earlier stage is let go by the transaction that ends the last job of that stage.

If we die

- before the answer is stored (`CallRoute.keeps_answers`), nothing is there. The job is taken over, and called again;
- after that and before the commit, the stored answer is read by whoever takes the job over, without a call;
- after the commit and before the ring, the answers are PENDING and nobody was told. Who rings is noticed to be dead,
  and then the leader looks (`on_death`); a leader that begins looks too.

If two rounds miss each other (one ends the MINI_SHOP of a product while another, unseen, brings its DETAIL), the
DETAIL is let go by whoever applies the MINI_SHOP, by the end of the run, or after `WAITS_AT_MOST`.

"Nothing changed" (304) is believed as long as what it stands for is what we have. Where another crawl has read
something else meanwhile, or the product was deleted, the validators are thrown away, and the next run reads it whole.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import delete

from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import CRAWL_PAGES, CRAWL_RAWS
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.cursors import Move, move_cursors
from tidegate.engine.job_store import LONGEST_REASON, JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.source import Cursor
from tidegate.engine.upstream import Answer
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement, parts
from tidegate.systems.crawl import bodies
from tidegate.systems.crawl.effects import Confirmed, RawStored, Sighted
from tidegate.systems.crawl.live import Key, Live, Parts, known_parts, let_go, live_raws
from tidegate.systems.crawl.raw_states import RawState
from tidegate.systems.crawl.stages import PageKind, Stage, place_of, stage_of
from tidegate.systems.crawl.tables import crawl_raws
from tidegate.systems.crawl.targets import Target, name_in

log = get_logger(__name__)

RAWS_STORED = "crawl.raws"
"""Announced by transactions that leave work for the processor."""


def _nothing(tx: Transaction, endings: Sequence[JobResult]) -> None:
    del tx, endings


class _Ended(NamedTuple):
    """A job that fetched a part of a product, and is over."""

    key: Key
    stage: Stage
    ending: JobResult


class CrawlWriter:
    """The `Writer` of crawls. `note` is given all endings too, for what identities and hosts have said."""

    def __init__(self, note: Callable[[Transaction, Sequence[JobResult]], object] = _nothing) -> None:
        self._note = note

    def write(self, tx: Transaction, endings: Sequence[JobResult]) -> None:
        """Write what these brought."""
        _replace_dead(tx, endings)
        ended = [_Ended(key, stage, ending) for ending in endings for key, stage in _part_of(ending)]
        if ended:
            _write_parts(tx, ended)
        _write_closed(tx, endings)
        _write_sightings(tx, endings)
        self._note(tx, endings)


def _part_of(ending: JobResult) -> Iterator[tuple[Key, Stage]]:
    spec = ending.claim.job.spec
    stage = stage_of(spec.kind)
    if stage is not None and ending.state is not JobState.READY:
        yield (spec.bucket, name_in(spec)), stage


def _write_parts(tx: Transaction, ended: Sequence[_Ended]) -> None:
    keys = sorted({one.key for one in ended})
    # In this order: what is applied between the two is seen as a part, or else as an answer on its way.
    live, known = live_raws(tx, keys), known_parts(tx, keys)
    news, equal, stale = list[dict[str, Any]](), 0, list[_Ended]()
    confirmed = 0
    for one in ended:
        for effect in one.ending.effects:
            mine = [raw for raw in live.get(one.key, ()) if raw.stage is one.stage]
            match effect:
                case RawStored() if _is_known(effect.hash, one.stage, known.get(one.key), mine):
                    equal += 1
                case RawStored():
                    news.append(_row(tx, one.ending, effect))
                case Confirmed():
                    confirmed += 1
                    if not _is_ours(effect.hash, one.stage, known.get(one.key), mine):
                        stale.append(one)
                case _:
                    pass
    _insert(tx, news)
    _forget_validators(tx, stale)
    freed = _freed(ended, live)
    if freed:
        let_go(tx, freed)
    if news or freed:
        tx.announce(RAWS_STORED)
    tx.after_commit(lambda: _count(stored=len(news), equal=equal, not_modified=confirmed))


def _is_known(content_hash: str, stage: Stage, known: Parts | None, mine: Sequence[Live]) -> bool:
    """Whether this is what the product says, or will as soon as what is on its way is applied."""
    newest = max(mine, key=lambda raw: raw.id, default=None)
    if newest is None or (known is not None and newest.id < (known.raw_of(stage) or 0)):
        return known is not None and known.hash_of(stage) == content_hash
    return newest.state is RawState.PENDING and newest.hash == content_hash


def _is_ours(content_hash: str, stage: Stage, known: Parts | None, mine: Sequence[Live]) -> bool:
    """Whether we have what this hash stands for: applied, or kept to be applied by itself or by somebody."""
    if known is not None and known.hash_of(stage) == content_hash:
        return True
    return any(raw.hash == content_hash for raw in mine)


def _freed(ended: Sequence[_Ended], live: dict[Key, list[Live]]) -> list[int]:
    """Answers that may have waited for a job that is over. That they do is found out under their locks."""
    return [
        raw.id
        for one in ended
        for raw in live.get(one.key, ())
        if raw.state is RawState.PENDING
        and raw.run_id == one.ending.claim.job.run_id
        and place_of(raw.stage) > place_of(one.stage)
    ]


def _row(tx: Transaction, ending: JobResult, raw: RawStored) -> dict[str, Any]:
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
    """Keep answers with which nothing is left to do: pages of searches, and those with which their jobs failed."""
    closed = [(ending, raw) for ending in endings for raw in (*_pages_of_searches(ending), *_abandoned(ending))]
    _insert(tx, [_row(tx, ending, raw) for ending, raw in closed])
    dead = sum(raw.error is not None for _, raw in closed)
    if dead:
        tx.after_commit(partial(_tell_dead, dead))


def _pages_of_searches(ending: JobResult) -> Iterator[RawStored]:
    for effect in ending.effects:
        if isinstance(effect, RawStored) and effect.stage is PageKind.SEARCH:
            yield effect


def _abandoned(ending: JobResult) -> Iterator[RawStored]:
    """The answer of a job that failed though it had one: reading it failed, or took down every worker that tried."""
    claim, spec = ending.claim, ending.claim.job.spec
    if ending.state is JobState.FAILED and claim.parked is not None and not ending.effects:
        target, body = Target.of(spec), Answer.unpack(claim.parked.answer).body
        yield RawStored(
            site=target.site,
            host=spec.bucket,
            product_id=name_in(spec),
            shop_id=target.shop,
            stage=PageKind(spec.kind),
            hash=bodies.digest(body),
            body=bodies.pack(body),
            error=ending.reason,
        )


def _replace_dead(tx: Transaction, endings: Sequence[JobResult]) -> None:
    """A job that ends once more leaves no dead letter of an earlier end beside its new one."""
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
            tx, [Move(claim.source, claim.user_id, claim.job.run_id, claim.job.spec, Cursor()) for claim in claims]
        )


def _write_sightings(tx: Transaction, endings: Sequence[JobResult]) -> None:
    rows = {
        (effect.host, found.product_id, ending.claim.user_id): ending.claim.job.run_id
        for ending in endings
        for effect in ending.effects
        if isinstance(effect, Sighted)
        for found in effect.products
    }
    # Sorted: two writers meet in one order.
    for part in parts([(*key, rows[key]) for key in sorted(rows)], lambda row: len(row[1])):
        _SIGHT.run(tx, given=part)


def _tell_dead(raws: int) -> None:
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
