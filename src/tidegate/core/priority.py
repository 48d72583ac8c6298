"""Who goes first."""

from enum import StrEnum


class Priority(StrEnum):
    """HIGH: a user waits for the result. LOW: background work, which may be slowed down but is never stopped."""

    HIGH = "high"
    LOW = "low"
