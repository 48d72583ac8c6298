"""Crawls."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps
from tidegate.storage.sql.schema import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Blob,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
)

revision = "0008"
down_revision = "0007"


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
    steps.create_table(
        "crawl_products",
        sa.Column("host", exact_text(100), nullable=False),
        sa.Column("product_id", exact_text(90), nullable=False),
        sa.Column("shop_id", exact_text(90), nullable=False),
        sa.Column("site", exact_text(40), nullable=False),
        sa.Column("mini_shop_content", Json),
        sa.Column("mini_shop_hash", exact_text(16)),
        sa.Column("mini_shop_raw", sa.BigInteger),
        sa.Column("detail_content", Json),
        sa.Column("detail_hash", exact_text(16)),
        sa.Column("detail_raw", sa.BigInteger),
        sa.Column("option_content", Json),
        sa.Column("option_hash", exact_text(16)),
        sa.Column("option_raw", sa.BigInteger),
        sa.Column("missing", Json),
        sa.Column("applied", sa.Integer, nullable=False),
        sa.Column("first_seen_at", UtcDateTime, nullable=False),
        sa.Column("changed_at", UtcDateTime, nullable=False),
        sa.Column("gone_at", UtcDateTime),
        sa.PrimaryKeyConstraint("host", "product_id", name="pk_crawl_products"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("crawl_products", ["host", "product_id", "gone_at"])
    steps.create_index("crawl_products", ["shop_id", "host", "product_id"])
    steps.create_table(
        "crawl_raws",
        sa.Column("id", ascending_key(), nullable=False),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.Column("job_id", sa.BigInteger, nullable=False),
        sa.Column("site", exact_text(40), nullable=False),
        sa.Column("host", exact_text(100), nullable=False),
        sa.Column("product_id", exact_text(90), nullable=False),
        sa.Column("shop_id", exact_text(90), nullable=False),
        sa.Column("stage", exact_text(16), nullable=False),
        sa.Column("hash", exact_text(16), nullable=False),
        sa.Column("body", Blob, nullable=False),
        sa.Column("received_at", UtcDateTime, nullable=False),
        sa.Column("state", exact_text(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("not_before", UtcDateTime, nullable=False),
        sa.Column("waits_for", exact_text(16)),
        sa.Column("reason", sa.Text),
        sa.Column("processed_at", UtcDateTime),
        sa.Column("applied_as", sa.Integer),
        sa.PrimaryKeyConstraint("id", name="pk_crawl_raws"),
        sa.UniqueConstraint("job_id", name="uq_crawl_raws_job_id"),
        options=NUMBERED_TABLE_OPTIONS,
    )
    steps.create_index("crawl_raws", ["host", "id"])
    steps.create_index("crawl_raws", ["host", "product_id"])
    steps.create_index("crawl_raws", ["run_id"])
    steps.create_index("crawl_raws", ["state", "id"])
    steps.create_index("crawl_raws", ["state", "not_before", "id"])
    steps.create_table(
        "crawl_sightings",
        sa.Column("host", exact_text(100), nullable=False),
        sa.Column("product_id", exact_text(90), nullable=False),
        sa.Column("crawl", exact_text(100), nullable=False),
        sa.Column("last_run_id", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("host", "product_id", "crawl", name="pk_crawl_sightings"),
        options=TABLE_OPTIONS,
    )
    steps.create_table(
        "crawl_turns",
        sa.Column("name", exact_text(40), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_crawl_turns"),
        options=TABLE_OPTIONS,
    )
