"""Checks the guarantees after a crawl, from rows, the trace of writes and the simulator."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import func, select

from chaos.crawl_trace import Applied, Key, ends
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.tables import collection_runs, job_executions, page_jobs
from tidegate.storage.sql import Transaction, outbox
from tidegate.systems.crawl.stages import STAGES, RawState, Stage, place_of
from tidegate.systems.crawl.tables import crawl_products, crawl_raws
from tidegate_simulators.marketplace import Report

_SHOWN = 3

Part = tuple[Key, Stage]


class Truth(NamedTuple):
    """What a product is, by the simulator's own account."""

    shop_id: str
    parts: dict[Stage, Any]


World = Mapping[Key, Truth]


class Round(msgspec.Struct, kw_only=True):
    """One crawl of everything."""

    tasks: int = 0
    calls: int = 0
    took_s: float = 0
    calls_per_s: float = 0
    applied: int = 0
    """Parts of products that got a content."""
    not_modified: int = 0
    """Calls that were answered with 304."""
    unchanged_pages: int = 0
    """Parts of products that were the same as in the round before."""
    unwritten: float | None = None
    """The share of those that ended without a write to their product."""


class Verdict(msgspec.Struct, kw_only=True):
    """The result; the list of breaches must be empty."""

    products: int = 0
    hosts: int = 0
    rounds: list[Round] = []
    killed: int = 0
    failures: int = 0
    """How often publications failed, or had an unknown outcome."""
    valkey_killed: int = 0
    lost_executions: int = 0
    """Tries that ended with their worker, and were made again."""
    faults: dict[str, int] = {}
    """Faults that the hosts injected."""
    refused: dict[str, int] = {}
    smallest_gap_ms: float | None = None
    """Between two calls to one host; each host has its own least gap."""
    pauses_announced: int = 0
    impolite: int = 0
    took_s: float = 0
    breaches: list[str] = []

    @property
    def is_well(self) -> bool:
        """Whether every rule was kept."""
        return not self.breaches


def some(what: str, cases: Sequence[Any]) -> Iterator[str]:
    """A breach with some examples; nothing where there are no cases."""
    if cases:
        yield f"{len(cases)} {what}, e.g. {', '.join(str(case) for case in cases[:_SHOWN])}"


def changed_parts(before: World, now: World) -> set[Part]:
    """What a crawl of now has to write, where one of before is known."""
    nothing = Truth("", {})
    return {
        (key, stage)
        for key, truth in now.items()
        for stage in STAGES
        if before.get(key, nothing).parts.get(stage) != truth.parts[stage]
    }


def of_orphans(tx: Transaction, run_ids: Sequence[int]) -> Iterator[str]:
    """Nothing is left undone: no task, no stored answer, no event, no try; and no run counts wrongly."""
    job, run, raw, execution = page_jobs.c, collection_runs.c, crawl_raws.c, job_executions.c
    jobs = tx.execute(select(job.status, func.count()).where(job.run_id.in_(run_ids)).group_by(job.status))
    states = {row[0]: row[1] for row in jobs}
    if others := {state: count for state, count in states.items() if state != JobState.SUCCEEDED}:
        failed = select(job.job_type, job.resource_key, job.status, job.last_error).where(
            job.run_id.in_(run_ids), job.status != JobState.SUCCEEDED
        )
        examples = [tuple(row) for row in tx.execute(failed.limit(_SHOWN))]
        yield f"tasks that have not succeeded: {others}, e.g. {examples}"
    for row in tx.execute(select(collection_runs).where(run.id.in_(run_ids))):
        counted = row.total_jobs, row.succeeded_jobs, row.failed_jobs
        if row.status != RunState.COMPLETED or row.failed_jobs or row.succeeded_jobs != row.total_jobs:
            yield f"run {row.id} is {row.status}, of {counted[0]} tasks {counted[1]} succeeded and {counted[2]} failed"
    raws = tx.execute(select(raw.state, func.count()).where(raw.run_id.in_(run_ids)).group_by(raw.state))
    if left := {row[0]: row[1] for row in raws if row[0] != RawState.PROCESSED}:
        yield f"stored answers that are not processed: {left}"
    depth = outbox.depth(tx)
    if depth.pending or depth.dead:
        yield f"the outbox has {depth.pending} pending and {depth.dead} dead events"
    open_ones = tx.execute(select(func.count()).select_from(job_executions).where(execution.ended_at.is_(None)))
    if (count := open_ones.scalar_one()) > 0:
        yield f"{count} tries never ended"


def of_products(tx: Transaction, truth: World) -> Iterator[str]:
    """Every product that is for sale is there, whole, and as it is; no other one is."""
    rows = {(row.host, row.product_id): row for row in tx.execute(select(crawl_products))}
    present = {key for key, row in rows.items() if row.gone_at is None}
    yield from some("products are lost", sorted(truth.keys() - present))
    yield from some("products are there that are not for sale", sorted(present - truth.keys()))
    both = sorted(present & truth.keys())
    yield from some("products lack something", [key for key in both if rows[key].missing is not None])
    yield from some("products belong to another shop", [key for key in both if rows[key].shop_id != truth[key].shop_id])
    for stage in STAGES:
        wrong = [key for key in both if getattr(rows[key], f"{stage}_content") != truth[key].parts[stage]]
        yield from some(f"products whose {stage} is not what it is", wrong)


def of_applications(applied: Sequence[Applied], expected: set[Part]) -> Iterator[str]:
    """Every change was written once, and nothing else was written."""
    counted = Counter((each.key, each.stage) for each in applied)
    yield from some("parts were applied more than once", sorted(part for part, count in counted.items() if count > 1))
    yield from some("parts were never applied", sorted(expected - counted.keys()))
    yield from some("parts were applied and had not changed", sorted(counted.keys() - expected))
    raws = Counter(each.raw for each in applied)
    yield from some("answers were applied to more than one part", sorted(raw for raw, n in raws.items() if n > 1))


def of_order(tx: Transaction, applied: Sequence[Applied], run_ids: Sequence[int]) -> Iterator[str]:
    """The stages of a product were applied in order, according to the trace and to the rows of the answers."""
    raw = crawl_raws.c
    columns = (raw.id, raw.run_id, raw.host, raw.product_id, raw.stage, raw.applied_as, raw.processed_at)
    raws = list(tx.execute(select(*columns).where(raw.run_id.in_(run_ids)).order_by(raw.id)))
    run_of = {row.id: row.run_id for row in raws}
    yield from some(
        "answers were applied that were not stored", [each.raw for each in applied if each.raw not in run_of]
    )
    reached, inverted = dict[tuple[int, Key], int](), list[Applied]()
    for each in applied:
        whose, place = (run_of.get(each.raw, 0), each.key), place_of(each.stage)
        if place < reached.get(whose, 0):
            inverted.append(each)
        reached[whose] = max(place, reached.get(whose, 0))
    yield from some("stages were applied in another order", inverted)
    by_product = dict[tuple[int, Key], dict[Stage, tuple[int, datetime]]]()
    for row in raws:
        if row.applied_as is not None:
            stages = by_product.setdefault((row.run_id, (row.host, row.product_id)), {})
            stages[Stage(row.stage)] = row.applied_as, row.processed_at
    told = [whose for whose, stages in by_product.items() if not _is_in_order(stages)]
    yield from some("products whose answers say that their stages were inverted", told)
    known = {row.id for row in raws}
    settled = [end for end, count in ends(tx).items() if end[0] in known and end[1] == RawState.PROCESSED and count > 1]
    yield from some("answers were processed more than once", settled)


def _is_in_order(stages: Mapping[Stage, tuple[int, datetime]]) -> bool:
    told = [stages[stage] for stage in STAGES if stage in stages]
    return all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(told))


def of_politeness(report: Report) -> Iterator[str]:
    """No host was called earlier than it allows, by its own clock, or against its robots.txt."""
    if report.broken:
        yield f"{report.broken} breaches of politeness: {report.violations}, e.g. {report.samples[:_SHOWN]}"


def unwritten_share(unchanged: set[Part], applied: Sequence[Applied], touched: set[Key]) -> float:
    """The number of unchanged pages that caused no write.

    Where nothing at all of a product has changed, any write to its row counts against all its pages.
    """
    changed = {each.key for each in applied}
    written = {(each.key, each.stage) for each in applied}
    kept = [part for part in unchanged if part not in written and (part[0] in changed or part[0] not in touched)]
    return len(kept) / len(unchanged) if unchanged else 1.0
