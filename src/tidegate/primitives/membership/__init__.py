"""Which processes are alive, and which one of them leads."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.membership.election import Elected, Election, Following
    from tidegate.primitives.membership.keys import PresenceKeys
    from tidegate.primitives.membership.presence import Expiry, Member, Presence
    from tidegate.primitives.membership.settings import PresenceSettings

__all__ = [
    "Elected",
    "Election",
    "Expiry",
    "Following",
    "Member",
    "Presence",
    "PresenceKeys",
    "PresenceSettings",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.membership.election": "Elected Election Following",
        "tidegate.primitives.membership.keys": "PresenceKeys",
        "tidegate.primitives.membership.presence": "Expiry Member Presence",
        "tidegate.primitives.membership.settings": "PresenceSettings",
    },
)
