"""Permits for calls to a rationed upstream: several limits at once, each exact in any window."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.core.priority import Priority
    from tidegate.flow.limiter.grant import Grant
    from tidegate.flow.limiter.keys import LimiterKeys
    from tidegate.flow.limiter.ledger import LimiterStatus, Usage
    from tidegate.flow.limiter.limiter import Batch, Limiter
    from tidegate.flow.limiter.settings import Limit, LimiterSettings, Rate

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
        "tidegate.flow.limiter.grant": "Grant",
        "tidegate.flow.limiter.keys": "LimiterKeys",
        "tidegate.flow.limiter.ledger": "LimiterStatus Usage",
        "tidegate.flow.limiter.limiter": "Batch Limiter",
        "tidegate.flow.limiter.settings": "Limit LimiterSettings Rate",
        "tidegate.core.priority": "Priority",
    },
)
