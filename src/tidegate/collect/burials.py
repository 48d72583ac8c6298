"""Runs that nobody ends: what has to be computed at their end failed for good, and its event is a dead letter.

Such a run is FINALIZING, which counts as active, until its event is replayed.
"""

from collections.abc import Sequence

from sqlalchemy import select

from tidegate.collect.accounts import RUN_ENDED, ended_key
from tidegate.collect.lifecycle import RunState
from tidegate.collect.tables import collection_runs
from tidegate.database import Transaction, outbox
from tidegate.database.outbox import StoredEvent

_MOST = 1_000


def buried(tx: Transaction, run_ids: Sequence[int]) -> dict[int, str]:
    """Those of some runs that only wait for a dead letter, and why it is one; the first thousand of them."""
    run = collection_runs.c
    found = select(run.id).where(run.id.in_(run_ids), run.status == RunState.FINALIZING).order_by(run.id)
    keys = {ended_key(row.id): row.id for row in tx.execute(found)}
    return {keys[letter.key]: letter.last_error or "" for letter in _letters(tx, list(keys))} if keys else {}


def replay(tx: Transaction, run_id: int) -> bool:
    """Have the end of a run handled once more; False where that has not failed for good."""
    letters = _letters(tx, [ended_key(run_id)])
    return bool(letters) and outbox.replay(tx, ids=[letter.id for letter in letters]) > 0


def _letters(tx: Transaction, keys: Sequence[str]) -> list[StoredEvent]:
    return outbox.dead_letters(tx, kind=RUN_ENDED, keys=keys, limit=_MOST)
