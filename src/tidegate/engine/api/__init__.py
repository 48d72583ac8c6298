"""HTTP routes of runs, jobs, schedules, credentials, quotas, reports and dead letters."""
