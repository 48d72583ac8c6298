"""Commands of runs, jobs, schedules, credentials and documents."""
