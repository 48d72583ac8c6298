"""Permits for calls to a rationed upstream: several limits at once, each exact in any window."""

from typing import TYPE_CHECKING

from tidegate.kernel.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.flow.limiter.grant import Grant
    from tidegate.flow.limiter.keys import LimiterKeys
    from tidegate.flow.limiter.ledger import LimiterStatus, Usage
    from tidegate.flow.limiter.limiter import Batch, Limiter
    from tidegate.flow.limiter.settings import Limit, LimiterSettings, Rate
    from tidegate.kernel.priority import Priority

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
        "tidegate.kernel.priority": "Priority",
    },
)
