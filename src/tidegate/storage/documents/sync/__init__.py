"""Documents as typed tables in DuckDB, PostgreSQL, Parquet or JSON Lines, kept up to date."""
