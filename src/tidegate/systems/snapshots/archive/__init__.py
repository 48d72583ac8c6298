"""History of snapshots: recent changes in the database, older ones in Parquet files."""
