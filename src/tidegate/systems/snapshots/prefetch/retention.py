"""How long it is known what prefetching spent."""

from datetime import timedelta

from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database
from tidegate.systems.snapshots.prefetch.tables import prefetch_hours


def rules(database: Database, *, hours: timedelta) -> list[RetentionRule]:
    """The calls of each hour."""
    return [TableRule(database, prefetch_hours, hours, lambda before: [prefetch_hours.c.day < before.date()])]
