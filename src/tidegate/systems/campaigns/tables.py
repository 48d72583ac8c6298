"""Tables of campaigns, decided entries, and points."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table

from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata
from tidegate.systems.campaigns.model import LONGEST_CAMPAIGN, LONGEST_KEY, LONGEST_KIND, LONGEST_TITLE, LONGEST_USER

LONGEST_CODE = 64
LONGEST_REASON = 500
campaigns = Table(
    "campaigns",
    metadata,
    Column("id", exact_text(LONGEST_CAMPAIGN), primary_key=True),
    Column("kind", exact_text(LONGEST_KIND), nullable=False),
    Column("title", exact_text(LONGEST_TITLE), nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("starts_at", UtcDateTime),
    Column("ends_at", UtcDateTime),
    Column("total_count", Integer, nullable=False),
    # NULL: unlimited.
    Column("stock", Integer),
    Column("points", Integer, nullable=False),
    # Every transaction that issues entries locks this row, so the stock is never exceeded.
    Column("issued", Integer, nullable=False),
    # Raised each time the campaign is installed on the server; numbers of an older epoch may be given again.
    Column("epoch", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""One row per campaign."""
campaign_entries = Table(
    "campaign_entries",
    metadata,
    Column("campaign", exact_text(LONGEST_CAMPAIGN), primary_key=True),
    Column("user_id", exact_text(LONGEST_USER), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("entry_key", exact_text(LONGEST_KEY)),
    Column("outcome", exact_text(16), nullable=False),
    Column("code", exact_text(LONGEST_CODE)),
    Column("points", Integer, nullable=False),
    Column("reason", exact_text(LONGEST_REASON)),
    Column("decided_at", UtcDateTime, nullable=False),
    Index(None, "campaign", "number"),
    **TABLE_OPTIONS,
)
"""One row per user with a decided entry; the primary key prevents a second outcome."""
point_accounts = Table(
    "point_accounts",
    metadata,
    Column("user_id", exact_text(LONGEST_USER), primary_key=True),
    Column("points", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)
"""Points per user, credited in the transaction that writes the entry."""
