"""Exports documents to files: Parquet, CSV or JSON Lines, with a manifest."""
