"""Documents have a fingerprint, and an index by the moment of their last change: copies find what they lack."""

import sqlalchemy as sa

from tidegate.storage.sql.migrations import steps

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    steps.add_column("documents", sa.Column("fingerprint", sa.BigInteger(), nullable=False, server_default="0"))
    steps.fill(sa.table("documents", sa.column("fingerprint")), fingerprint=1 + steps.random_integer())
    steps.create_index("documents", ["source", "kind", "changed_at", "id", "fingerprint"])
