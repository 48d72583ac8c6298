"""A bell on the server: whoever waits at it wakes at once, and a ring in an empty house is heard later."""

from tidegate.flow.doorbell.doorbell import Doorbell

__all__ = ["Doorbell"]
