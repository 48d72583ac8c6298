"""Indexes for what people look at: runs that ended lately, products of a shop and those that are gone, kept answers."""

from tidegate.storage.sql.migrations import steps

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    # With the kind behind it, the index alone tells how far each kind of a run is; the jobs in a state stay in order.
    steps.create_index("page_jobs", ["run_id", "status", "id", "job_type"])
    steps.drop_index("page_jobs", ["run_id", "status", "id"])
    steps.create_index("collection_runs", ["completed_at", "status"])
    steps.create_index("crawl_products", ["shop_id", "host", "product_id"])
    steps.create_index("crawl_products", ["host", "product_id", "gone_at"])
    steps.create_index("crawl_raws", ["state", "id"])
    steps.create_index("crawl_raws", ["host", "id"])
