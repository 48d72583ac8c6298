"""Reads and writes the state of products: what was applied to them, which answers are pending, and their outcomes.

Outcomes are written in bulk, with one statement for any number of rows. Answers are applied under a lock that is held
until the commit: the leader is one process, but a frozen one can resume after another was elected. If both applied
different answers to one product, each would start from the same old state. With the lock, the second one sees the
changes of the first.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement, parts
from tidegate.storage.sql.urls import Dialect
from tidegate.systems.crawl.stages import SEARCH, STAGES, RawState, Stage, earlier
from tidegate.systems.crawl.tables import crawl_turns
from tidegate.systems.crawl.targets import product_resource

_APPLYING = "applying"


def lock_processing(tx: Transaction) -> None:
    """Take the lock until the commit, waiting for its holder. SQLite has only one writer anyway."""
    if tx.dialect != "sqlite":
        tx.insert_or_lock(crawl_turns, {"name": _APPLYING}, key="name")


Key = tuple[str, str]
"""Host and product id."""

WAITS_AT_MOST = timedelta(seconds=30)
"""After this time an answer that waits for another is processed again, in case it was not released."""


class StoredAnswerState(msgspec.Struct, frozen=True, gc=False):
    """A pending answer or a dead letter."""

    id: int
    run_id: int
    stage: Stage
    hash: str
    state: RawState
    waits: bool
    reason: str | None


class AppliedParts(msgspec.Struct, frozen=True, gc=False):
    """The applied parts of a product, by stage."""

    hashes: dict[Stage, str | None]
    raws: dict[Stage, int | None]
    missing: dict[str, str]
    applied: int

    def hash_of(self, stage: Stage) -> str | None:
        """Hash of the applied content of a stage; None if nothing was applied."""
        return self.hashes[stage]

    def raw_of(self, stage: Stage) -> int | None:
        """Id of the answer that was last applied for a stage."""
        return self.raws[stage]


def live_raws(tx: Transaction, keys: Sequence[Key]) -> dict[Key, list[StoredAnswerState]]:
    """Pending answers and dead letters of these products, unordered."""
    found: defaultdict[Key, list[StoredAnswerState]] = defaultdict(list)
    for host, product_id, raw_id, run_id, stage, content_hash, state, waits_for, reason in _LIVE.rows(tx, wanted=keys):
        live = StoredAnswerState(
            raw_id, run_id, Stage(stage), content_hash, RawState(state), waits_for is not None, reason
        )
        found[host, product_id].append(live)
    return found


def known_parts(tx: Transaction, keys: Sequence[Key]) -> dict[Key, AppliedParts]:
    """The applied parts of these products, as far as they exist."""
    found = dict[Key, AppliedParts]()
    for host, product_id, missing, applied, *values in _KNOWN.rows(tx, wanted=keys):
        hashes = dict(zip(STAGES, values[: len(STAGES)], strict=True))
        raws = dict(zip(STAGES, values[len(STAGES) :], strict=True))
        found[host, product_id] = AppliedParts(hashes, raws, msgspec.json.decode(missing) if missing else {}, applied)
    return found


def release_waiting(tx: Transaction, raw_ids: Sequence[int]) -> None:
    """Release those of these answers that wait for an earlier stage; pauses after failures continue.

    All of them are locked, also those that seem not to wait: a transaction may be about to commit that they do.
    """
    _RELEASE.run(tx, ids=sorted(set(raw_ids)), now=tx.now)


def by_id(text: str, ending: str = "") -> dict[Dialect, str]:
    """A statement on answers by id in a certain `{state}`; servers append the `ending`.

    On SQLite, a sign before the column prevents the use of its index, which would read all answers in that state.
    """
    plain = text.format(state="state") + ending
    return {"sqlite": text.format(state="+state"), "postgresql": plain, "mysql": plain}


def looked_up(text: str, table: str, index: str) -> dict[Dialect, str]:
    """A SELECT that reads the wanted keys and looks each up in `table`, which replaces `{join}`.

    Without the hints, servers read all of a new table as long as they have no statistics of it.
    """
    return {
        "sqlite": text.format(join=f"CROSS JOIN {table}"),
        "postgresql": text.format(join=f"JOIN {table}"),
        "mysql": text.format(join=f"STRAIGHT_JOIN {table} FORCE INDEX ({index})"),
    }


_WANTED = ":wanted(host key, product_id key)"
_STATES = f"'{RawState.PENDING}', '{RawState.FAILED}'"
_LIVE_ONES = f"""
SELECT r.host, r.product_id, r.id, r.run_id, r.stage, r.hash, r.state, r.waits_for, r.reason
FROM {_WANTED} {{join}} ON r.host = wanted.host AND r.product_id = wanted.product_id
WHERE r.state IN ({_STATES}) AND r.stage <> '{SEARCH}'"""  # noqa: S608
_LIVE = Statement(
    looked_up(_LIVE_ONES, "crawl_raws r", "ix_crawl_raws_host_product_id"),
    returns=("host", "product_id", "id", "run_id", "stage", "hash", "state", "waits_for", "reason"),
)
_HASHES = tuple(f"{stage}_hash" for stage in STAGES)
_RAWS = tuple(f"{stage}_raw" for stage in STAGES)
_KNOWN_ONES = f"""
SELECT p.host, p.product_id, p.missing, p.applied, {", ".join(f"p.{name}" for name in (*_HASHES, *_RAWS))}
FROM {_WANTED} {{join}} ON p.host = wanted.host AND p.product_id = wanted.product_id"""  # noqa: S608
_KNOWN = Statement(
    looked_up(_KNOWN_ONES, "crawl_products p", "PRIMARY"),
    returns=("host", "product_id", "missing", "applied", *_HASHES, *_RAWS),
)
_RELEASE_SQL = f"""
UPDATE crawl_raws
SET not_before = CASE WHEN waits_for IS NULL THEN not_before ELSE :now END, waits_for = NULL
WHERE id IN :ids[] AND {{state}} = '{RawState.PENDING}'"""  # noqa: S608
_RELEASE = Statement(by_id(_RELEASE_SQL))


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
