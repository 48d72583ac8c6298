"""The schema's history: one file in `versions/` for each change, in order. There is no way back but a backup."""

VERSION_TABLE = "schema_version"
"""Where a database keeps which of them it has."""
