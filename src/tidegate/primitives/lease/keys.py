"""The keys of a lease."""

from tidegate.core.arguments import require_name
from tidegate.storage.valkey import Key, Unit


class LeaseKeys:
    """Where one lease lives."""

    def __init__(self, unit: Unit, name: str) -> None:
        self.lease: Key = unit.key(f"lease:{require_name('lease', name)}")
        """hash, expires some time after the lease: owner, fence, until_ms."""
        self.fence: Key = unit.key("fence")
        """string: the greatest fence that any lease of the unit has given."""
