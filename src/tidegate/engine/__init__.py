"""Runs of jobs: one job is one upstream call, SQL is the truth about all of them."""
