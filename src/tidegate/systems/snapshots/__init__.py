"""Snapshots of a rate-limited upstream: readers never wait for it, and its limits are never exceeded."""
