"""Checks whether links answer: an example of a Tidegate system in a distribution of its own."""
