"""Figures, not adjectives: `make bench` measures everything in one run and keeps the table in bench/RESULTS.md."""
