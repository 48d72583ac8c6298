"""Commands of snapshots: `tidegate snapshots`."""
