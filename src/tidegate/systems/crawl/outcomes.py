"""Bulk statements for the outcomes of answers and products: one statement each for any number of rows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement, parts
from tidegate.systems.crawl.product_state import Key, by_id, looked_up
from tidegate.systems.crawl.raw_states import RawState
from tidegate.systems.crawl.stages import STAGES, Stage, earlier
from tidegate.systems.crawl.targets import product_resource

Jobs = Mapping[tuple[int, Stage, Key], Sequence[tuple[str, str]]]
"""By run, stage and product: the state of each job, with its reason."""


class AnswerOutcome(NamedTuple):
    """The outcome of an answer."""

    id: int
    state: RawState
    attempts: int
    not_before: datetime
    waits_for: Stage | None = None
    reason: str | None = None
    applied_as: int | None = None


class ProductRow(NamedTuple):
    """A product to write; `contents` has only the new ones."""

    key: Key
    shop_id: str
    site: str
    contents: Mapping[Stage, str]
    hashes: Mapping[Stage, str | None]
    raws: Mapping[Stage, int | None]
    missing: Mapping[str, str]
    applied: int

    def values(self) -> tuple[Any, ...]:
        """The values in the order of the statement."""
        by_stage = [each.get(stage) for each in (self.contents, self.hashes, self.raws) for stage in STAGES]
        return (*self.key, self.shop_id, self.site, *by_stage, missing_text(self.missing), self.applied)

    @property
    def size(self) -> int:
        """Approximate size in characters."""
        return sum(map(len, self.contents.values()))


def missing_text(missing: Mapping[str, str]) -> str | None:
    """The value of the column `missing`."""
    return msgspec.json.encode(missing).decode() if missing else None


def lock_raws(tx: Transaction, raw_ids: Sequence[int]) -> dict[int, int]:
    """Lock the pending ones of these answers until the commit; returns their attempts by id."""
    return {row[0]: row[1] for row in _LOCK.rows(tx, ids=sorted(raw_ids))} if raw_ids else {}


def jobs_before(tx: Transaction, raws: Iterable[tuple[int, Stage, Key]]) -> Jobs:
    """The jobs that fetch earlier stages of these answers' products, in the same runs."""
    wanted = {(run_id, stage.value, product_resource(*key)): key for run_id, own, key in raws for stage in earlier(own)}
    found: defaultdict[tuple[int, Stage, Key], list[tuple[str, str]]] = defaultdict(list)
    if wanted:
        # By id, so that the last reason is that of the latest job.
        rows = sorted(_JOBS.rows(tx, wanted=list(wanted)), key=itemgetter(-1))
        for run_id, kind, resource, status, error, _ in rows:
            found[run_id, Stage(kind), wanted[run_id, kind, resource]].append((status, error or str(status)))
    return found


def write_outcomes(tx: Transaction, outcomes: Sequence[AnswerOutcome]) -> None:
    """Write the outcomes of answers."""
    for part in parts(outcomes, lambda outcome: len(outcome.reason or "")):
        _SETTLE.run(tx, given=part, now=tx.now)


def write_products(tx: Transaction, rows: Sequence[ProductRow]) -> None:
    """Write products: new contents change a product; without new contents, only its bookkeeping is updated."""
    # Two statements, because only new contents set the time of the change.
    changed, kept = [row for row in rows if row.contents], [row for row in rows if not row.contents]
    for some, statement in ((changed, _CHANGE), (kept, _KEEP)):
        for part in parts(some, lambda row: row.size):
            statement.run(tx, given=[row.values() for row in part], now=tx.now)


_LOCKING = f"SELECT id, attempts FROM crawl_raws WHERE id IN :ids[] AND {{state}} = '{RawState.PENDING}'"  # noqa: S608
_LOCK = Statement(by_id(_LOCKING, " ORDER BY id FOR UPDATE"), returns=("id", "attempts"))
_JOBS_BEFORE = """
SELECT j.run_id, j.job_type, j.resource_key, j.status, j.last_error, j.id
FROM :wanted(run_id number, kind key, resource key)
{join} ON j.run_id = wanted.run_id AND j.job_type = wanted.kind AND j.resource_key = wanted.resource"""
_JOBS = Statement(
    looked_up(_JOBS_BEFORE, "page_jobs j", "uq_page_jobs_run_id_job_type_resource_key_page_key"),
    returns=("run_id", "job_type", "resource_key", "status", "last_error", "id"),
)
_OUTCOMES = """:given(
  raw number, outcome text, tried number, again_at moment, behind text, why text, number number
)"""
_SET = f"""
SET state = given.outcome, attempts = given.tried, not_before = given.again_at, waits_for = given.behind,
    reason = given.why, applied_as = given.number,
    processed_at = CASE WHEN given.outcome = '{RawState.PENDING}' THEN NULL ELSE :now END"""
_FROM = "UPDATE crawl_raws {set} FROM {given} WHERE id = given.raw"
_SETTLE = Statement(
    {
        "sqlite": _FROM.format(set=_SET, given=_OUTCOMES),
        "postgresql": _FROM.format(set=_SET.replace(":now", ":now::timestamptz"), given=_OUTCOMES),
        "mysql": f"UPDATE {_OUTCOMES} STRAIGHT_JOIN crawl_raws FORCE INDEX (PRIMARY) ON id = given.raw {_SET}",
    }
)
_CONTENTS = tuple(f"{stage}_content" for stage in STAGES)
_HASHES = tuple(f"{stage}_hash" for stage in STAGES)
_RAWS = tuple(f"{stage}_raw" for stage in STAGES)
_TEXTS = ("host", "product_id", "shop_id", "site", *_CONTENTS, *_HASHES)
_COLUMNS = (*_TEXTS, *_RAWS, "missing", "applied")
_NUMBERS = frozenset({*_RAWS, "applied"})
_GIVEN = ", ".join(f"{name} {'number' if name in _NUMBERS else 'text'}" for name in _COLUMNS)
_INSERT = f"""
INSERT INTO crawl_products ({", ".join(_COLUMNS)}, first_seen_at, changed_at)
SELECT {", ".join(f"given.{name}" for name in _COLUMNS)}"""


def _upsert(*, changes: bool) -> Statement:
    """Build the statement that inserts or updates products; with `changes`, it sets the time of the change too."""
    # A stored content stays unless a new one is given.
    kept = [f"{name} = coalesce({{new}}, crawl_products.{name})" for name in _CONTENTS]
    plain = [f"{name} = {{new}}" for name in (*_COLUMNS[2:4], *_HASHES, *_RAWS, "missing", "applied")]
    names = [*_CONTENTS, *_COLUMNS[2:4], *_HASHES, *_RAWS, "missing", "applied"]
    templates = list(zip(names, [*kept, *plain], strict=True))
    if changes:
        templates.append(("changed_at", "changed_at = {new}"))
    excluded = ", ".join(text.format(new=f"excluded.{name}") for name, text in templates)
    values = ", ".join(text.format(new=f"VALUES({name})") for name, text in templates)
    on_conflict = f"ON CONFLICT (host, product_id) DO UPDATE SET {excluded}"
    moment = ":now::timestamptz"
    return Statement(
        {
            # Without a WHERE, SQLite would take ON for the beginning of a join's condition.
            "sqlite": f"{_INSERT}, :now, :now FROM :given({_GIVEN}) WHERE true {on_conflict}",
            "postgresql": f"{_INSERT}, {moment}, {moment} FROM :given({_GIVEN}) {on_conflict}",
            "mysql": f"{_INSERT}, :now, :now FROM :given({_GIVEN}) ON DUPLICATE KEY UPDATE {values}",
        }
    )


_CHANGE = _upsert(changes=True)
_KEEP = _upsert(changes=False)
