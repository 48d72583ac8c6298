"""Reports on runs, jobs and credentials. All functions are read-only."""
