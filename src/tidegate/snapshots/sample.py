"""How fresh snapshots are, by a sample: the first subjects of each kind, so that the look costs the same for ever."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import func, select

from tidegate.database import Transaction
from tidegate.kernel.arguments import require_positive
from tidegate.snapshots.store import FAILED
from tidegate.snapshots.tables import snapshot_status, snapshots

_MOST_FAILED = 10_000
_c, _status = snapshots.c, snapshot_status.c


class FreshnessMix(msgspec.Struct, frozen=True, kw_only=True):
    """How good the snapshots of a sample are, as readers would be told at this moment."""

    sampled: int
    """How many subjects were looked at."""
    is_all: bool
    """Whether those are all there are."""
    fresh: int
    stale: int
    updating: int
    """Nothing is known of them yet."""
    not_found: int
    """The upstream has no such subject."""
    failed: int
    """Of all subjects: those whose last refresh failed for good, ten thousand at most."""


def freshness_mix(tx: Transaction, ttls: Mapping[str, timedelta], most: int = 1000) -> FreshnessMix:
    """Look at the first `most` subjects of all kinds together, each kind with its share."""
    require_positive("most", most)
    share = max(1, most // max(1, len(ttls)))
    counts = {"fresh": 0, "stale": 0, "updating": 0, "not_found": 0}
    sampled, is_all = 0, True
    for kind, ttl in ttls.items():
        those = select(_c.size, _c.last_checked_at, _c.missing_since).where(_c.kind == kind)
        rows = tx.execute(those.order_by(_c.key).limit(share)).all()
        for size, checked_at, missing_since in rows:
            counts[_judged(size, checked_at, missing_since, tx.now - ttl)] += 1
        sampled, is_all = sampled + len(rows), is_all and len(rows) < share
    return FreshnessMix(sampled=sampled, is_all=is_all, failed=_failed(tx), **counts)


def _judged(size: int, checked_at: datetime | None, missing_since: datetime | None, fresh_since: datetime) -> str:
    if missing_since is not None:
        return "not_found"
    if not size:
        return "updating"
    return "fresh" if checked_at is not None and checked_at > fresh_since else "stale"


def _failed(tx: Transaction) -> int:
    some = select(_status.key).where(_status.state == FAILED).limit(_MOST_FAILED).subquery()
    return tx.execute(select(func.count()).select_from(some)).scalar_one()
