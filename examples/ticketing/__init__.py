"""A small ticket shop on Tidegate: a waiting room before each sale, seats that are sold once, a ranking of concerts.

`python -m examples.ticketing` runs it with simulated visitors. docs/guides/ticketing.md explains it.
"""
