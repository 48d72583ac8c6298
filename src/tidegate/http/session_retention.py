"""Retention rules of sessions: rows are deleted after they expire."""

from datetime import timedelta

from tidegate.http.session_tables import http_sessions, revoked_sessions
from tidegate.runtime.retention import RetentionRule, TableRule
from tidegate.storage.sql import Database


def session_rules(database: Database) -> list[RetentionRule]:
    """Rules for sessions and for revocations."""
    return [
        TableRule(database, table, timedelta(), lambda now, table=table: [table.c.expires_at < now])
        for table in (revoked_sessions, http_sessions)
    ]
