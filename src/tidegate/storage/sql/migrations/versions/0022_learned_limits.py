"""What refusals taught of a credential, for a gate that lost its data."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import UtcDateTime
from tidegate.storage.sql.migrations import steps

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    for name in ("learned_concurrency", "learned_per_minute", "learned_every_ms"):
        steps.add_column("allowance_notes", sa.Column(name, sa.Integer))
    for name in ("learned_from", "learned_until"):
        steps.add_column("allowance_notes", sa.Column(name, UtcDateTime))
