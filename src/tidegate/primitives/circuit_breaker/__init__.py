"""Stops calls to a server that keeps failing."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.circuit_breaker.circuit_breaker import CircuitBreaker, CircuitBreakerState
    from tidegate.primitives.circuit_breaker.settings import CircuitBreakerSettings

__all__ = ["CircuitBreaker", "CircuitBreakerSettings", "CircuitBreakerState"]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.circuit_breaker.circuit_breaker": "CircuitBreaker CircuitBreakerState",
        "tidegate.primitives.circuit_breaker.settings": "CircuitBreakerSettings",
    },
)
