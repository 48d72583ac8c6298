"""What the database itself has seen: every move of a run, and every event that was ever written.

Kept by triggers, so that it records moves of which the product has no record.
"""

from collections import Counter
from typing import Any

from sqlalchemy import column, select, table, text

from tidegate.engine.lifecycle import RunState
from tidegate.storage.sql import Database, Transaction

_moves = table("chaos_moves", column("run_id"), column("state"))
_events = table("chaos_events", column("kind"), column("event_key"))

_TABLES = [
    "CREATE TABLE chaos_moves (run_id BIGINT, state VARCHAR(16))",
    "CREATE TABLE chaos_events (kind VARCHAR(200), event_key VARCHAR(200))",
]
_NOTE_MOVE = "INSERT INTO chaos_moves VALUES (NEW.id, NEW.status)"
_NOTE_EVENT = "INSERT INTO chaos_events VALUES (NEW.kind, NEW.event_key)"
_SQLITE = [
    f"CREATE TRIGGER chaos_moved AFTER UPDATE OF status ON collection_runs WHEN OLD.status <> NEW.status"
    f" BEGIN {_NOTE_MOVE}; END",
    f"CREATE TRIGGER chaos_told AFTER INSERT ON outbox_events BEGIN {_NOTE_EVENT}; END",
]
_POSTGRES = [
    f"CREATE FUNCTION chaos_move() RETURNS trigger AS 'BEGIN {_NOTE_MOVE}; RETURN NULL; END' LANGUAGE plpgsql",
    f"CREATE FUNCTION chaos_tell() RETURNS trigger AS 'BEGIN {_NOTE_EVENT}; RETURN NULL; END' LANGUAGE plpgsql",
    "CREATE TRIGGER chaos_moved AFTER UPDATE OF status ON collection_runs FOR EACH ROW"
    " WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION chaos_move()",
    "CREATE TRIGGER chaos_told AFTER INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION chaos_tell()",
]


async def install(database: Database) -> None:
    """Create the triggers in a new database; SQLite or PostgreSQL."""
    await database.transaction(_install)


def _install(tx: Transaction) -> None:
    triggers = _SQLITE if tx.dialect == "sqlite" else _POSTGRES
    for statement in [*_TABLES, *triggers]:
        tx.execute(text(statement))


def moves_into(tx: Transaction, state: RunState) -> Counter[int]:
    """How often each run came into a state."""
    found = tx.execute(select(_moves.c.run_id).where(_moves.c.state == state))
    return Counter(row.run_id for row in found)


def events_of(tx: Transaction, kind: str) -> Counter[str]:
    """How many events of a kind were written, by their keys."""
    found: Any = tx.execute(select(_events.c.event_key).where(_events.c.kind == kind))
    return Counter(row.event_key for row in found)
