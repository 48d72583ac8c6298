"""Hosts that are crawled, identities that crawl them, and how the two stand with each other."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, Json, UtcDateTime, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    steps.create_table(
        "crawl_hosts",
        sa.Column("host", exact_text(255), nullable=False),
        sa.Column("robots_state", exact_text(16), nullable=False),
        sa.Column("robots", Json),
        sa.Column("read_at", UtcDateTime),
        sa.Column("robots_url", sa.Text),
        sa.Column("redirects", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("refusals", sa.Integer, nullable=False),
        sa.Column("crawl_delay_ms", sa.BigInteger, nullable=False),
        sa.Column("rests_until", UtcDateTime),
        sa.Column("reason", exact_text(500)),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_crawl_hosts"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "crawl_identities",
        sa.Column("name", exact_text(80), nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("key_id", exact_text(16), nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_crawl_identities"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "crawl_identity_health",
        sa.Column("identity", exact_text(80), nullable=False),
        sa.Column("host", exact_text(255), nullable=False),
        sa.Column("score", sa.Double, nullable=False),
        sa.Column("resting_until", UtcDateTime),
        sa.Column("rests", sa.Integer, nullable=False),
        sa.Column("refusals", sa.BigInteger, nullable=False),
        sa.Column("last_reason", exact_text(500)),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("identity", "host", name="pk_crawl_identity_health"),
        options=TABLE_OPTIONS,
    )
