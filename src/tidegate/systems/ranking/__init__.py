"""Rankings: members of a board by day, week and month. `service.Ranking` is the entry point."""
