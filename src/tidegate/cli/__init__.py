"""Helpers shared by all commands: lazy groups, settings and event loop, tables, formatting."""
