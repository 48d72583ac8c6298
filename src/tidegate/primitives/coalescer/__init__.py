"""Merges concurrent requests for the same work; versions distinguish new results from old ones."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.coalescer.coalescer import (
        AlreadyProcessing,
        Coalescer,
        CoalescerKeys,
        Draft,
        Outcome,
        Published,
        Upgraded,
    )
    from tidegate.primitives.settings import CoalescerSettings

__all__ = [
    "AlreadyProcessing",
    "Coalescer",
    "CoalescerKeys",
    "CoalescerSettings",
    "Draft",
    "Outcome",
    "Published",
    "Upgraded",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.coalescer.coalescer": (
            "AlreadyProcessing Coalescer Draft Outcome Published Upgraded CoalescerKeys"
        ),
        "tidegate.primitives.settings": "CoalescerSettings",
    },
)
