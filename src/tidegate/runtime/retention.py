"""Deletes old data: one rule for each table or key family that would grow without bound.

A rule deletes a limited number of rows per transaction, so that other writers are not blocked. A read finds old rows;
the transaction that deletes them checks their age again. A crash between two batches needs no repair: the next leader
continues.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import ColumnElement, FromClause, delete, exists, select, tuple_

from tidegate.core.clock import milliseconds, monotonic_ms, to_ms
from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import RETENTION_DELETED
from tidegate.primitives.stream import Stream
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.outbox import EventState
from tidegate.storage.sql.schema import handled_events, outbox_events
from tidegate.storage.valkey import Valkey

log = get_logger(__name__)

AT_ONCE = 500
"""Rows that one transaction deletes."""
_BETWEEN_BATCHES_MS = 10

Conditions = Sequence[ColumnElement[bool]]


class RetentionRule(Protocol):
    """Deletes old rows of some tables, or old entries of some keys."""

    @property
    def name(self) -> str:
        """Name of the rule in logs and metrics."""
        ...

    @property
    def tables(self) -> Collection[str]:
        """The tables that the rule bounds; empty for keys."""
        ...

    async def prune(self, most: int) -> int:
        """Delete about `most` rows or entries. Returns how many were deleted, 0 if nothing is old."""
        ...


class TableRule:
    """Deletes the rows of a table that are older than `keep`.

    `old` returns the conditions for rows from before a given time. They are checked again when a row is deleted.
    `unused` are further conditions, usually that nothing refers to the row; only the search checks them.

        TableRule(database, handled_events, timedelta(days=30), lambda before: [handled_events.c.handled_at < before])
    """

    def __init__(
        self,
        database: Database,
        table: FromClause,
        keep: timedelta,
        old: Callable[[datetime], Conditions],
        *,
        unused: Conditions = (),
        name: str | None = None,
        key: Sequence[ColumnElement[Any]] | None = None,
    ) -> None:
        """`key` is the primary key of a table that is declared without one."""
        self._database, self._table, self._keep, self._old, self._unused = database, table, keep, old, unused
        self._key = tuple(key or table.primary_key)
        self.tables = (str(table.name),)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self.name = name or self.tables[0]

    async def prune(self, most: int) -> int:
        """Delete up to `most` rows. Returns how many."""
        before = self._database.clock.now() - self._keep
        found = await self._database.read(self._find, before, most)
        return await self._database.transaction(self._delete, found, before) if found else 0

    def _find(self, tx: Transaction, before: datetime, most: int) -> list[Any]:
        rows = tx.execute(select(*self._key).where(*self._old(before), *self._unused).limit(most))
        return [tuple(row) for row in rows]

    def _delete(self, tx: Transaction, found: list[Any], before: datetime) -> int:
        those = delete(self._table).where(tuple_(*self._key).in_(sorted(found)), *self._old(before))  # pyright: ignore[reportArgumentType]
        return tx.execute(those).rowcount


class DeadLetterRule:
    """Deletes dead letters of a stream that are older than `keep`. Their entry ids begin with their time."""

    tables: Collection[str] = ()

    def __init__(self, valkey: Valkey, stream: Stream, keep: timedelta, now: Callable[[], datetime]) -> None:
        self._valkey, self._dead, self._keep, self._now = valkey, stream.keys.dead, keep, now
        self.name = f"{stream.name}:dead"

    async def prune(self, most: int) -> int:
        """Delete about `most` old entries: whole nodes of the stream, or the last few. Returns how many."""
        trim = ("XTRIM", self._dead, "MINID")
        oldest_ms = to_ms(self._now() - self._keep)
        deleted: int = await self._valkey.execute(*trim, "~", oldest_ms, "LIMIT", most)
        # `~` removes only whole nodes of the stream. The exact form removes the last few.
        return deleted or await self._valkey.execute(*trim, oldest_ms)


def outbox_rules(database: Database, *, handled: timedelta, dead: timedelta) -> list[RetentionRule]:
    """Rules for records of handled events and for dead letters of the outbox.

    An event can be delivered again while it is in the outbox, pending or dead. Until then its record is kept.
    """
    event, note = outbox_events.c, handled_events.c
    comes_again = exists().where(event.event_id == note.event_id)
    return [
        TableRule(database, handled_events, handled, lambda before: [note.handled_at < before], unused=[~comes_again]),
        TableRule(
            database,
            outbox_events,
            dead,
            lambda before: [event.state == EventState.DEAD, event.created_at < before],
        ),
    ]


class Retention:
    """A due source of the leader's timekeeper: applies all rules at the start of a leader and then every `every`.

    `load` creates the rules when they are first needed, so that only the leader imports the modules behind them.
    """

    def __init__(
        self,
        load: Callable[[], Sequence[RetentionRule]],
        every: timedelta,
        *,
        now_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        self._load, self._every, self._now_ms = load, every, now_ms
        self._rules: Sequence[RetentionRule] | None = None
        self._left = deque[RetentionRule]()
        self._due_ms, self._deleted = 0.0, 0

    async def fire(self) -> int | None:
        """Delete one batch if it is due; return in how many ms to continue."""
        if not self._left and self._now_ms() >= self._due_ms:
            if self._rules is None:
                self._rules = self._load()
            self._left.extend(self._rules)
            self._due_ms = self._now_ms() + milliseconds(self._every)
        while self._left:
            if await self._prune(self._left[0]):
                # A pause between batches lets other writers in. The same rule continues with the next call.
                return _BETWEEN_BATCHES_MS
            self._left.popleft()
        return max(1, round(self._due_ms - self._now_ms()))

    async def _prune(self, rule: RetentionRule) -> int:
        """Delete one batch by a rule; 0 if nothing is left. A rule that fails is skipped until the next time."""
        try:
            rows = await rule.prune(AT_ONCE)
        except (Unavailable, ServerRefused):
            raise
        except Exception:
            log.exception("retention.failed", rule=rule.name)
            rows = 0
        self._deleted += rows
        if rows:
            RETENTION_DELETED.labels(rule.name).inc(rows)
        elif self._deleted:
            log.info("retention.deleted", rule=rule.name, rows=self._deleted)
            self._deleted = 0
        return rows
