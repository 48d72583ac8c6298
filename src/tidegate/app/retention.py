"""All retention rules of an installation, and what is kept without one."""

from sqlalchemy import column, table

from tidegate.app.parts import Parts
from tidegate.runtime.retention import DeadLetterRule, RetentionRule, TableRule, outbox_rules

KEPT = {
    "collection_places": "one row for each source",
    "collection_schedules": "deleted by `tidegate schedules remove`",
    "crawl_hosts": "one row for each host that is crawled; deleted by `tidegate crawl hosts --forget`",
    "crawl_identities": "deleted by `tidegate crawl identities remove`",
    "crawl_products": "the result of crawls: as many as the sites have listed",
    "crawl_sightings": "one row for each product and crawl",
    "crawl_turns": "a few rows that are locked",
    "credential_allowances": "deleted with their last credential",
    "credentials": "deleted by `tidegate credentials remove`",
    "documents": "the result of collections: as many as the upstream has listed",
    "point_accounts": "the points of users: one row for each",
    "ranking_boards": "one row for each board of the settings",
    "ranking_events": "deleted by the board's own calendar, when every window that they count in is gone",
    "ranking_scores": "deleted by the board's own calendar, with their window",
    "snapshot_archives": "one row for each file of the archive",
    "snapshot_history": "moved to the archive (`snapshots.archive`)",
    "snapshot_status": "one row for each subject whose refresh fails; deleted when it succeeds",
    "snapshots": "one row for each subject",
    "statistics_items": "one row for each document",
    "statistics_users": "one row for each user",
    "waiting_rooms": "deleted by `tidegate room delete`",
}
"""Tables without a rule that deletes their rows by age, and why they do not grow for ever."""

_revoked = table("revoked_sessions", column("subject"), column("expires_at"))
_sessions = table("http_sessions", column("id"), column("expires_at"))
"""Declared in `tidegate.http`, which is above this package."""


def retention_rules(parts: Parts) -> list[RetentionRule]:
    """The rules, each made beside the tables that it is about. Imported here: only the leader needs them."""
    from datetime import timedelta

    from tidegate.engine import retention as collect
    from tidegate.systems.campaigns import retention as campaigns
    from tidegate.systems.crawl import retention as crawl
    from tidegate.systems.snapshots.prefetch import retention as prefetch
    from tidegate.systems.waiting_room import retention as waiting_room

    database, valkey, kept = parts.database, parts.valkey, parts.settings.retention
    return [
        *outbox_rules(database, handled=kept.handled_events, dead=kept.dead_letters),
        *collect.rules(database, runs=kept.runs, cursors=kept.cursors, firings=kept.firings),
        *crawl.rules(
            database,
            raws=parts.settings.crawl.raws_kept,
            dead_letters=kept.dead_letters,
            identity_health=kept.identity_health,
        ),
        *waiting_room.rules(database, room_tokens_kept=kept.room_tokens),
        *campaigns.rules(valkey, database, campaigns_kept=kept.campaigns),
        *prefetch.rules(database, hours=kept.prefetch_hours),
        TableRule(database, _revoked, timedelta(), lambda now: [_revoked.c.expires_at < now], key=[_revoked.c.subject]),
        TableRule(database, _sessions, timedelta(), lambda now: [_sessions.c.expires_at < now], key=[_sessions.c.id]),
        *(
            DeadLetterRule(valkey, stream, kept.dead_letters, database.clock.now)
            for stream in (parts.jobs, parts.alarms)
        ),
    ]
