"""How long answers of hosts, dead letters and refusals of identities are kept."""

from datetime import timedelta

from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database
from tidegate.systems.crawl.manner_tables import crawl_identity_health
from tidegate.systems.crawl.raw_states import RawState
from tidegate.systems.crawl.tables import crawl_raws


def rules(
    database: Database, *, raws: timedelta, dead_letters: timedelta, identity_health: timedelta
) -> list[RetentionRule]:
    """Answers that were made products of, those that could not be, and how identities stand with hosts."""
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
