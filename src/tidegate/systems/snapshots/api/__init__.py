"""HTTP routes of snapshots: `/v1/snapshots`."""
