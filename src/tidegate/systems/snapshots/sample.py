"""How fresh snapshots are, by a random sample of bounded size, so that the look costs the same for ever.

Each row has a place in a random order (`sample_place`). A sample is the rows that follow a place drawn at random, each
kind with its share; the first places follow the last ones.
"""

import random
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import func, select

from tidegate.core.arguments import require_positive
from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.store import FAILED, SAMPLE_PLACES
from tidegate.systems.snapshots.tables import snapshot_status, snapshots

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


def freshness_mix(
    tx: Transaction, ttls: Mapping[str, timedelta], most: int = 1000, start: int | None = None
) -> FreshnessMix:
    """Look at up to `most` subjects of all kinds together, chosen at random, each kind with its share.

    `start`: the place at which the sample begins; drawn at random by default.
    """
    require_positive("most", most)
    share = max(1, most // max(1, len(ttls)))
    start = random.randrange(SAMPLE_PLACES) if start is None else start  # noqa: S311 - a sample, not a secret
    counts = {"fresh": 0, "stale": 0, "updating": 0, "not_found": 0}
    sampled, is_all = 0, True
    for kind, ttl in ttls.items():
        those = select(_c.size, _c.last_checked_at, _c.missing_since).where(_c.kind == kind)
        those = those.order_by(_c.sample_place)
        rows = list(tx.execute(those.where(_c.sample_place >= start).limit(share)))
        if len(rows) < share:
            rows += tx.execute(those.where(_c.sample_place < start).limit(share - len(rows)))
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
