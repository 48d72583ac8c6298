"""Crawls product pages of marketplaces: targets, identities, politeness, stored answers and products."""

SOURCE = "crawl"
"""The name of the source in runs, jobs and schedules."""
