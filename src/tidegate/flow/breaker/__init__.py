"""Spare a server that fails, and those who wait for it."""

from tidegate.flow.breaker.breaker import Breaker, BreakerState
from tidegate.flow.breaker.settings import BreakerSettings

__all__ = ["Breaker", "BreakerSettings", "BreakerState"]
