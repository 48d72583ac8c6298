"""Migrations of the schema: one file in `versions/` per change, in order. They cannot be undone; restore a backup."""

VERSION_TABLE = "schema_version"
"""Where a database keeps which of them it has."""
