"""The sixteen load scenarios of snapshots: real processes under load and under faults, with figures and targets."""
