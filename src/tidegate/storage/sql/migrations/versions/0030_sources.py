"""Documents, cursors and credentials are namespaced by source; the column of a run's login has no upstream's name."""

import sqlalchemy as sa

from tidegate.storage.sql.columns import exact_text
from tidegate.storage.sql.migrations import steps

revision = "0030"
down_revision = "0029"

_FIRST = "github"
"""The source of rows that have no run any more: only this source and those of embedding programs wrote any."""


def upgrade() -> None:
    steps.rename_column("collection_runs", "github_login", "login")
    steps.drop_index("collection_runs", ["github_login", "id"])
    steps.create_index("collection_runs", ["login", "id"])
    for table, run_id in (("documents", "sweep"), ("collection_cursors", "last_run_id")):
        steps.add_column(table, _source())
        steps.fill(sa.table(table, sa.column("source")), source=_source_of_run(table, run_id))
    for columns in (["kind", "owner", "id"], ["kind", "resource"], ["kind", "owner", "gone_at", "changed_at"]):
        steps.create_index("documents", ["source", *columns])
        steps.drop_index("documents", columns)
    steps.change_primary_key("documents", ["source", "kind", "id"])
    steps.change_primary_key("collection_cursors", ["source", "user_id", "resource_type", "resource_key"])
    for table in ("credential_allowances", "credentials", "allowance_notes"):
        steps.add_column(table, _source())
    steps.change_primary_key("allowance_notes", ["source", "credential", "bucket"])
    steps.change_unique("credentials", ["name"], ["source", "name"])
    for table in ("documents", "collection_cursors", "credential_allowances", "credentials", "allowance_notes"):
        steps.drop_default(table, "source")


def _source() -> sa.Column[str]:
    return sa.Column("source", exact_text(40), nullable=False, server_default=_FIRST)


def _source_of_run(table: str, run_id: str) -> sa.ColumnElement[str]:
    run = sa.table("collection_runs", sa.column("id"), sa.column("source"))
    found = sa.select(run.c.source).where(run.c.id == sa.literal_column(f"{table}.{run_id}")).scalar_subquery()
    return sa.func.coalesce(found, _FIRST)
