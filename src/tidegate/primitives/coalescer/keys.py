"""The keys of one subject's work."""

from tidegate.core.arguments import require_name
from tidegate.storage.valkey import Key, Unit


class CoalescerKeys:
    """The keys of a subject's lock and version; all subjects share one unit, so that one script can read many."""

    def __init__(self, unit: Unit, subject: str) -> None:
        self.work: Key = unit.key(f"work:{require_name('subject', subject)}")
        """hash, expires: version, published; and while locked: token, outcome, urgent, lasts_ms, until_ms."""
        self.mark: Key = unit.key("mark")
        """string, never expires: the highest version of all subjects."""
