"""Permits for calls to a rate-limited upstream: several limits at once, each exact in any window."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.core.priority import Priority
    from tidegate.primitives.limiter.ledger import Grant, LimiterKeys, LimiterStatus, Usage
    from tidegate.primitives.limiter.limiter import Batch, Limiter
    from tidegate.primitives.limiter.settings import Limit, LimiterSettings, Rate

__all__ = [
    "Batch",
    "Grant",
    "Limit",
    "Limiter",
    "LimiterKeys",
    "LimiterSettings",
    "LimiterStatus",
    "Priority",
    "Rate",
    "Usage",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.limiter.ledger": "Grant LimiterKeys LimiterStatus Usage",
        "tidegate.primitives.limiter.limiter": "Batch Limiter",
        "tidegate.primitives.limiter.settings": "Limit LimiterSettings Rate",
        "tidegate.core.priority": "Priority",
    },
)
