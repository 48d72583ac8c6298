"""The keys of one subject's work."""

from tidegate.core.arguments import require_name
from tidegate.storage.valkey import Key, Unit


class CoalescerKeys:
    """Where a subject's lock and version live: in one unit with all others, so that many are asked for in one step."""

    def __init__(self, unit: Unit, subject: str) -> None:
        self.work: Key = unit.key(f"work:{require_name('subject', subject)}")
        """hash, expires: version, published; and while locked: token, outcome, urgent, lasts_ms, until_ms."""
        self.mark: Key = unit.key("mark")
        """string, never expires: the highest version that any subject was given."""
