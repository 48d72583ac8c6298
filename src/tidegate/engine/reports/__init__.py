"""What operators and users ask about runs, jobs and credentials; every function only reads."""
