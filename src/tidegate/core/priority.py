"""Priorities of requests and work."""

from enum import StrEnum


class Priority(StrEnum):
    """HIGH: a user waits for the result. LOW: background work, which may be delayed but always progresses."""

    HIGH = "high"
    LOW = "low"
