"""Many ask for the same work at once; one of them does it, and its version tells old results from new ones."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.flow.coalescer.coalescer import AlreadyProcessing, Coalescer, Draft, Outcome, Published, Upgraded
    from tidegate.flow.coalescer.keys import CoalescerKeys
    from tidegate.flow.coalescer.settings import CoalescerSettings

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
        "tidegate.flow.coalescer.coalescer": "AlreadyProcessing Coalescer Draft Outcome Published Upgraded",
        "tidegate.flow.coalescer.keys": "CoalescerKeys",
        "tidegate.flow.coalescer.settings": "CoalescerSettings",
    },
)
