"""Many ask for the same work at once; one of them does it, and its version tells old results from new ones."""

from tidegate.flow.coalescer.coalescer import AlreadyProcessing, Coalescer, Outcome, Published, Upgraded
from tidegate.flow.coalescer.keys import CoalescerKeys
from tidegate.flow.coalescer.settings import CoalescerSettings

__all__ = [
    "AlreadyProcessing",
    "Coalescer",
    "CoalescerKeys",
    "CoalescerSettings",
    "Outcome",
    "Published",
    "Upgraded",
]
