"""Tables of hosts, identities, and the health of identities at hosts."""

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, Table, Text

from tidegate.storage.sql.schema import TABLE_OPTIONS, Json, UtcDateTime, exact_text, metadata

LONGEST_HOST = 255
LONGEST_REASON = 500

crawl_hosts = Table(
    "crawl_hosts",
    metadata,
    Column("host", exact_text(LONGEST_HOST), primary_key=True),
    Column("robots_state", exact_text(16), nullable=False),
    # The text itself, where there is one.
    Column("robots", Json),
    # When it was read, or found to be missing; NULL: never, or it is to be read again.
    Column("read_at", UtcDateTime),
    # The URL to which it was redirected, and the number of redirects, while it is being looked up.
    Column("robots_url", Text),
    Column("redirects", Integer, nullable=False),
    # Failed attempts, and refused ones, since it was last known.
    Column("failures", Integer, nullable=False),
    Column("refusals", Integer, nullable=False),
    # The longest Crawl-delay among the User-Agents that are in use.
    Column("crawl_delay_ms", BigInteger, nullable=False),
    # It must not be called before this time.
    Column("rests_until", UtcDateTime),
    Column("reason", exact_text(LONGEST_REASON)),
    Column("changed_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""Hosts that are crawled, and the state of their robots.txt. Restores a gate that lost its data."""

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
"""Identities with which hosts are called."""

crawl_identity_health = Table(
    "crawl_identity_health",
    metadata,
    # The built-in identity has no row among the identities, and can be refused like any other.
    Column("identity", exact_text(80), primary_key=True),
    Column("host", exact_text(LONGEST_HOST), primary_key=True),
    Column("score", Double, nullable=False),
    Column("resting_until", UtcDateTime),
    # Rests in close succession: each one of unspecified length is twice as long as the previous one.
    Column("rests", Integer, nullable=False),
    Column("refusals", BigInteger, nullable=False),
    Column("last_reason", exact_text(LONGEST_REASON)),
    Column("updated_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""The health of an identity at a host that has refused it: a copy of what the gate knows."""
