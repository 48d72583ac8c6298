"""Permits for calls to a rationed upstream: several limits at once, each exact in any window."""

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
