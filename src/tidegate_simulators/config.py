"""What the descriptions of all simulators have in common."""

import msgspec

from tidegate.core.arguments import require_at_most, require_not_negative


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named fields that never change."""


def require_share(name: str, value: float) -> None:
    """From nothing to all."""
    require_not_negative(name, value)
    require_at_most(name, value, 1)
