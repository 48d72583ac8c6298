"""Prefetch: refreshes subjects before a reader asks; decides which, when, and how many per day."""
