"""HTTP routes of the engine, on a whole process."""
