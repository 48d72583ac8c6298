"""Tables of stored answers, products and sightings."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text

from tidegate.storage.sql.schema import (
    NUMBERED_TABLE_OPTIONS,
    TABLE_OPTIONS,
    Blob,
    Json,
    UtcDateTime,
    ascending_key,
    exact_text,
    metadata,
)

HASH_LENGTH = 16
"""Length of the hash of a body; see `raws.digest`."""
LONGEST_HOST = 100
"""The same as the `login` of a run, which is the host."""
LONGEST_PRODUCT = 90
LONGEST_SITE = 40

crawl_raws = Table(
    "crawl_raws",
    metadata,
    Column("id", ascending_key(), primary_key=True),
    Column("run_id", BigInteger, nullable=False),
    # A job has one answer at most: when a job ends again, an earlier dead letter is deleted.
    Column("job_id", BigInteger, nullable=False, unique=True),
    Column("site", exact_text(LONGEST_SITE), nullable=False),
    Column("host", exact_text(LONGEST_HOST), nullable=False),
    Column("product_id", exact_text(LONGEST_PRODUCT), nullable=False),
    Column("shop_id", exact_text(LONGEST_PRODUCT), nullable=False),
    Column("stage", exact_text(16), nullable=False),
    Column("hash", exact_text(HASH_LENGTH), nullable=False),
    Column("body", Blob, nullable=False),
    Column("received_at", UtcDateTime, nullable=False),
    Column("state", exact_text(16), nullable=False),
    # Number of failed attempts to apply it.
    Column("attempts", Integer, nullable=False),
    Column("not_before", UtcDateTime, nullable=False),
    # The stage that must be applied first.
    Column("waits_for", exact_text(16)),
    Column("reason", Text),
    Column("processed_at", UtcDateTime),
    # Sequence number of the change that it made to its product, unique per product.
    Column("applied_as", Integer),
    Index(None, "state", "not_before", "id"),
    Index(None, "host", "product_id"),
    Index(None, "run_id"),
    Index(None, "state", "id"),
    Index(None, "host", "id"),
    **NUMBERED_TABLE_OPTIONS,
)
"""Stored answers: new parts of products and search pages, with their state."""

crawl_products = Table(
    "crawl_products",
    metadata,
    Column("host", exact_text(LONGEST_HOST), primary_key=True),
    Column("product_id", exact_text(LONGEST_PRODUCT), primary_key=True),
    Column("shop_id", exact_text(LONGEST_PRODUCT), nullable=False),
    Column("site", exact_text(LONGEST_SITE), nullable=False),
    # For each stage: its content, the hash of the content, and the id of its answer.
    Column("mini_shop_content", Json),
    Column("mini_shop_hash", exact_text(HASH_LENGTH)),
    Column("mini_shop_raw", BigInteger),
    Column("detail_content", Json),
    Column("detail_hash", exact_text(HASH_LENGTH)),
    Column("detail_raw", BigInteger),
    Column("option_content", Json),
    Column("option_hash", exact_text(HASH_LENGTH)),
    Column("option_raw", BigInteger),
    # Stages that the last run could not fetch, with reasons; NULL: none.
    Column("missing", Json),
    # Number of answers that were applied to it.
    Column("applied", Integer, nullable=False),
    Column("first_seen_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("gone_at", UtcDateTime),
    Index(None, "shop_id", "host", "product_id"),
    # Covers searches for products that are gone.
    Index(None, "host", "product_id", "gone_at"),
    **TABLE_OPTIONS,
)
"""Products as they were last seen. A row is written when something in it changes."""

crawl_sightings = Table(
    "crawl_sightings",
    metadata,
    Column("host", exact_text(LONGEST_HOST), primary_key=True),
    Column("product_id", exact_text(LONGEST_PRODUCT), primary_key=True),
    Column("crawl", exact_text(100), primary_key=True),
    Column("last_run_id", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)
"""The last run in which a crawl listed a product. A product that no crawl lists any more is gone."""

crawl_turns = Table(
    "crawl_turns",
    metadata,
    Column("name", exact_text(40), primary_key=True),
    **TABLE_OPTIONS,
)
"""Rows that serve as locks, for work that must not run twice even if two processes believe that they lead."""
