"""What a subject was."""

from datetime import datetime

import msgspec


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as it was from `changed_at` on."""

    key: str
    version: int
    changed_at: datetime
    hash: str
    body: bytes
    """JSON, as it was kept."""
    is_archived: bool = False

    @property
    def size(self) -> int:
        """Of the body."""
        return len(self.body)
