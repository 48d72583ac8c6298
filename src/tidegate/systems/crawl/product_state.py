"""Reads the state of products: what was applied to them, and which answers are pending."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement
from tidegate.storage.sql.urls import Dialect
from tidegate.systems.crawl.raw_states import RawState
from tidegate.systems.crawl.stages import SEARCH, STAGES, Stage

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
