"""A small ticket shop on Tidegate: a waiting room before each sale, seats that are sold once, a ranking of concerts.

`python -m examples.ticketing` runs it with a crowd. docs/guides/ticketing.md tells how it is built.
"""
