"""Repositories that several subjects reach: the owner of their documents, and the run that collects them now."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import TABLE_OPTIONS, exact_text
from tidegate.storage.sql.migrations import steps

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    steps.add_column("page_jobs", sa.Column("owner", exact_text(200)))
    steps.add_column("page_jobs", sa.Column("awaits_run", sa.BigInteger))
    steps.create_index("page_jobs", ["awaits_run", "resource_key"], only_with="awaits_run")
    steps.create_table(
        "resource_claims",
        sa.Column("source", exact_text(40), nullable=False),
        sa.Column("resource_key", exact_text(200), nullable=False),
        sa.Column("run_id", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("source", "resource_key", name="pk_resource_claims"),
        options=TABLE_OPTIONS,
    )
    steps.create_index("resource_claims", ["run_id"])
