"""Long-running services of a process, and the supervisor that keeps them running."""
