"""The keys of one subject's work."""

from zlib import crc32

from tidegate.kernel.arguments import require_name
from tidegate.valkey import Key, Valkey


class CoalescerKeys:
    """Where a subject's lock and version live: in the unit of its bucket, which is the same in every process."""

    def __init__(self, valkey: Valkey, name: str, subject: str, *, buckets: int) -> None:
        bucket = crc32(require_name("subject", subject).encode()) % buckets
        unit = valkey.unit(f"{name}:{bucket}")
        self.work: Key = unit.key(f"work:{subject}")
        """hash, expires: version, published; and while locked: token, outcome, urgent, lasts_ms, until_ms."""
        self.mark: Key = unit.key("mark")
        """string, never expires: the highest version that any subject of the bucket was given."""
