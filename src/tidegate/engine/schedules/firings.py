"""Tables of schedules and firings; a firing has a key and starts at most one run, also if it is requested repeatedly.

A firing locks the row of the schedule, checks whether the key has begun a run, and is written in the transaction
that begins one. A key that began none, because its user had an active run, may be fired again. The clock's own firings
have their due time as key, so that a trigger that names it is the same firing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text, UniqueConstraint, delete, select

from tidegate.core.arguments import require_name
from tidegate.core.errors import Conflict, InvalidArgument
from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.schema import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
    metadata,
)

collection_schedules = Table(
    "collection_schedules",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("source", exact_text(40), nullable=False),
    Column("user_id", exact_text(200), nullable=False),
    Column("login", exact_text(200), nullable=False),
    Column("options", Json, nullable=False),
    Column("cron", exact_text(100), nullable=False),
    Column("timezone", exact_text(64), nullable=False),
    # NULL while it is paused. Changed by the transaction that starts the run, so that a due time starts at most one.
    Column("next_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("last_due_at", UtcDateTime),
    Column("last_run_id", BigInteger),
    # Why the last due time started no run.
    Column("last_error", Text),
    UniqueConstraint("source", "user_id", "cron", "timezone"),
    Index(None, "next_at"),
    **NUMBERED_TABLE_OPTIONS,
)
"""Cron expressions that start runs. A subject can have several, such as nightly changes and a monthly full run."""

schedule_firings = Table(
    "schedule_firings",
    metadata,
    Column(
        "schedule_id",
        BigInteger,
        ForeignKey("collection_schedules.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    # The due time, or the key from the caller.
    Column("firing_key", exact_text(200), primary_key=True),
    Column("fired_at", UtcDateTime, nullable=False, index=True),
    Column("outcome", exact_text(16), nullable=False),
    Column("run_id", BigInteger),
    Column("reason", Text),
    **TABLE_OPTIONS,
)
"""Recorded firings, so that none is repeated; written by the transaction that starts the run."""


log = get_logger(__name__)

_c = schedule_firings.c
LONGEST_KEY = 200


class FiringOutcome(StrEnum):
    """The outcome of a firing."""

    BEGUN = "begun"
    SKIPPED = "skipped"  # the user has an active run; another firing, or the same key, can start one later
    FAILED = "failed"  # this schedule cannot start a run; other schedules are not affected


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a firing."""

    schedule_id: int
    firing_key: str
    fired_at: datetime
    outcome: FiringOutcome
    run_id: int | None = None
    """The run that it started."""
    reason: str | None = None
    """Why it started no run."""


class ScheduleInactive(Conflict):
    """The schedule is paused. The firing is not recorded and can be requested again."""

    def __init__(self, schedule_id: int) -> None:
        super().__init__(f"schedule {schedule_id} is paused; resume it first")
        self.schedule_id = schedule_id


def require_key(firing_key: str) -> str:
    """Return a valid firing key. Raises `InvalidArgument` for others."""
    require_name("firing_key", firing_key)
    if len(firing_key) > LONGEST_KEY:
        raise InvalidArgument("firing_key", firing_key[:32] + "…", f"must have at most {LONGEST_KEY} characters")
    return firing_key


def due_key(due_at: datetime) -> str:
    """The firing key of a due time: `2026-11-16T03:00:00Z`."""
    return f"{due_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def find(tx: Transaction, keys: Mapping[int, str]) -> dict[int, Firing]:
    """Return the firings with these keys that started a run, by schedule. Lock the schedules to keep this valid."""
    found = _present(tx, keys, *_c)
    return {
        row.schedule_id: _firing(row)
        for row in found
        if row.firing_key == keys[row.schedule_id] and row.run_id is not None
    }


def _present(tx: Transaction, keys: Mapping[int, str], *columns: Any) -> Sequence[Any]:
    """Conditions for the rows of these schedules with these keys."""
    those = (_c.schedule_id.in_(sorted(keys)), _c.firing_key.in_(sorted(set(keys.values()))))
    return tx.execute(select(*columns).where(*those)).all() if keys else []


def begun(tx: Transaction, schedule_id: int, firing_key: str) -> Firing | None:
    """Return a firing if it has started a run."""
    return find(tx, {schedule_id: firing_key}).get(schedule_id)


def of_schedule(tx: Transaction, schedule_id: int, limit: int = 100) -> list[Firing]:
    """Return the last firings of a schedule, latest first."""
    those = select(schedule_firings).where(_c.schedule_id == schedule_id)
    return [_firing(row) for row in tx.execute(those.order_by(_c.fired_at.desc(), _c.firing_key).limit(limit))]


def record(tx: Transaction, firings: Iterable[Firing]) -> None:
    """Store firings; each replaces an earlier one with the same key. Their schedules must be locked."""
    rows = [msgspec.structs.asdict(firing) for firing in firings]
    keys = {row["schedule_id"]: row["firing_key"] for row in rows}
    for schedule_id, firing_key in _present(tx, keys, _c.schedule_id, _c.firing_key):
        if keys[schedule_id] == firing_key:
            tx.execute(delete(schedule_firings).where(_c.schedule_id == schedule_id, _c.firing_key == firing_key))
    tx.insert_many(schedule_firings, rows)


def _firing(row: object) -> Firing:
    return msgspec.convert(row, Firing, from_attributes=True)
