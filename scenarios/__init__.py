"""The sixteen load scenarios of snapshots: real processes under load and under faults, a figure for each promise."""
