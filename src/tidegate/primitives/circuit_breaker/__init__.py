"""Spare a server that fails, and those who wait for it."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.circuit_breaker.breaker import Breaker, BreakerState
    from tidegate.primitives.circuit_breaker.settings import BreakerSettings

__all__ = ["Breaker", "BreakerSettings", "BreakerState"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.circuit_breaker.breaker": "Breaker BreakerState",
        "tidegate.primitives.circuit_breaker.settings": "BreakerSettings",
    },
)
