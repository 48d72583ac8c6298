"""The table of webhook deliveries."""

from sqlalchemy import Column, Index, Integer, Table

from tidegate.storage.sql.schema import TABLE_OPTIONS, Blob, UtcDateTime, exact_text, metadata

github_deliveries = Table(
    "github_deliveries",
    metadata,
    # `X-GitHub-Delivery`: the same when GitHub sends a delivery again.
    Column("id", exact_text(100), primary_key=True),
    Column("event", exact_text(60), nullable=False),
    Column("action", exact_text(60)),
    Column("repository", exact_text(200), nullable=False),
    Column("received_at", UtcDateTime, nullable=False),
    # NULL until its documents are committed.
    Column("applied_at", UtcDateTime),
    # Number of changed documents.
    Column("documents", Integer),
    # The payload, compressed; NULL once it is applied.
    Column("body", Blob),
    Index(None, "received_at"),
    **TABLE_OPTIONS,
)
"""One row per webhook delivery, to apply it once and to recognize redeliveries."""
