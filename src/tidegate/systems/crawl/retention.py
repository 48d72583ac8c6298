"""Retention of stored answers, dead letters and the health of identities."""

from datetime import timedelta

from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database
from tidegate.systems.crawl.host_tables import crawl_identity_health
from tidegate.systems.crawl.stages import RawState
from tidegate.systems.crawl.tables import crawl_raws


def rules(
    database: Database, *, raws: timedelta, dead_letters: timedelta, identity_health: timedelta
) -> list[RetentionRule]:
    """The rules for processed answers, dead letters and health rows."""
    raw, health = crawl_raws.c, crawl_identity_health.c
    return [
        TableRule(
            database,
            crawl_raws,
            raws,
            lambda before: [raw.state == RawState.PROCESSED, raw.not_before < before, raw.processed_at < before],
        ),
        TableRule(
            database,
            crawl_raws,
            dead_letters,
            lambda before: [raw.state == RawState.FAILED, raw.received_at < before],
            name="crawl_dead_letters",
        ),
        TableRule(
            database,
            crawl_identity_health,
            identity_health,
            lambda before: [
                health.updated_at < before,
                health.resting_until.is_(None) | (health.resting_until < before),
            ],
        ),
    ]
