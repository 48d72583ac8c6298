"""Runs, statistics, credentials, dead letters and metrics over HTTP."""
