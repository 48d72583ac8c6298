"""Who goes first."""

from enum import StrEnum


class Priority(StrEnum):
    """HIGH: somebody waits for it. LOW: nobody does, so it may be slowed down, and is never stopped."""

    HIGH = "high"
    LOW = "low"
