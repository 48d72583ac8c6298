"""Whose credentials may be used: encrypted at rest, and known by names that tell nothing."""
