"""The tier of each subject, by which subjects are asked for, and its place in the order of samples."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from tidegate.storage.sql.columns import UtcDateTime
from tidegate.storage.sql.migrations import steps

revision = "0026"
down_revision = "0025"

_HOT, _WARM, _COLD = 0, 1, 2


def upgrade() -> None:
    steps.add_column("snapshots", sa.Column("tier", sa.SmallInteger, nullable=False, server_default=str(_COLD)))
    steps.add_column("snapshots", sa.Column("sample_place", sa.Integer, nullable=False, server_default="0"))
    _fill()
    steps.create_index("snapshots", ["tier", "next_due_at"])
    steps.create_index("snapshots", ["kind", "sample_place"])


def _fill() -> None:
    """Rows that are there: by the default tiers, and at random places. Doing it again changes nothing that matters."""
    rows = sa.table(
        "snapshots",
        sa.column("tier", sa.SmallInteger),
        sa.column("sample_place", sa.Integer),
        sa.column("last_asked_at", UtcDateTime),
    )
    asked, now = rows.c.last_asked_at, datetime.now(UTC)
    tier = sa.case((asked >= now - timedelta(days=1), _HOT), (asked >= now - timedelta(days=7), _WARM), else_=_COLD)
    steps.fill(rows, tier=tier, sample_place=steps.random_integer())
