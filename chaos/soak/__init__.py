"""A soak test: all systems under load for a long time, with random faults, and judges that compare every result."""
