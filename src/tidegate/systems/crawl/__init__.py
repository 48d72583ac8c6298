"""Product pages of marketplaces: schedules, identities, raw answers, products, and no orphan."""

SOURCE = "crawl"
"""The name of the source in runs, jobs and schedules."""
