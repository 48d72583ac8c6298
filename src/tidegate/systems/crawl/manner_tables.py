"""Whom we call and as whom, and what we must not forget of either."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, Table, Text

from tidegate.storage.sql.columns import TABLE_OPTIONS, Json, UtcDateTime, exact_text
from tidegate.storage.sql.schema import metadata

LONGEST_HOST = 255
LONGEST_REASON = 500

crawl_hosts = Table(
    "crawl_hosts",
    metadata,
    Column("host", exact_text(LONGEST_HOST), primary_key=True),
    Column("robots_state", exact_text(16), nullable=False),
    # The text itself, where there is one.
    Column("robots", Json),
    # When it was read, or found that there is none; NULL: never, or it is to be read anew.
    Column("read_at", UtcDateTime),
    # Where it was sent to by redirects, and how often, while it is being looked for.
    Column("robots_url", Text),
    Column("redirects", Integer, nullable=False),
    # Since it was last known: tries that failed, and tries that were refused.
    Column("failures", Integer, nullable=False),
    Column("refusals", Integer, nullable=False),
    # The longest Crawl-delay among the User-Agents that are in use.
    Column("crawl_delay_ms", BigInteger, nullable=False),
    # Nobody calls it before.
    Column("rests_until", UtcDateTime),
    Column("reason", exact_text(LONGEST_REASON)),
    Column("changed_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""Hosts that are crawled, and what is known of their robots.txt: what a gate that lost its data is told anew."""

crawl_identities = Table(
    "crawl_identities",
    metadata,
    Column("name", exact_text(80), primary_key=True),
    # Encrypted: all header lines that go with it, the User-Agent among them.
    Column("headers", Text, nullable=False),
    Column("key_id", exact_text(16), nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""As whom hosts are called."""

crawl_identity_health = Table(
    "crawl_identity_health",
    metadata,
    # The built-in one has no row among the identities, and may be refused like any other.
    Column("identity", exact_text(80), primary_key=True),
    Column("host", exact_text(LONGEST_HOST), primary_key=True),
    Column("score", Double, nullable=False),
    Column("resting_until", UtcDateTime),
    # Rests that followed each other: where nobody says how long, each is twice as long.
    Column("rests", Integer, nullable=False),
    Column("refusals", BigInteger, nullable=False),
    Column("last_reason", exact_text(LONGEST_REASON)),
    Column("updated_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""How an identity stands with a host, once it was refused there: the copy of what the gate knows."""
