"""Runs that are over without their statistics: computing them failed for good, and the event is a dead letter.

A replay of the event computes them.
"""

from collections.abc import Sequence

from tidegate.engine.run_counters import RUN_ENDED, ended_key
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import StoredEvent

_MOST = 1_000


def buried(tx: Transaction, run_ids: Sequence[int]) -> dict[int, str]:
    """Those of some runs whose end is a dead letter, and why; the first thousand of them."""
    keys = {ended_key(run_id): run_id for run_id in sorted(set(run_ids))}
    return {keys[letter.key]: letter.last_error or "" for letter in _letters(tx, list(keys))} if keys else {}


def replay(tx: Transaction, run_id: int) -> bool:
    """Have the end of a run handled once more; False where that has not failed for good."""
    letters = _letters(tx, [ended_key(run_id)])
    return bool(letters) and outbox.replay(tx, ids=[letter.id for letter in letters]) > 0


def _letters(tx: Transaction, keys: Sequence[str]) -> list[StoredEvent]:
    return [
        letter for letter in outbox.dead_letters(tx, keys=keys, limit=_MOST) if letter.kind.startswith(f"{RUN_ENDED}.")
    ]
