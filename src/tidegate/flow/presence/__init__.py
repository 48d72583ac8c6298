"""Which processes are alive, and which one of them leads."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.flow.presence.election import Elected, Election, Following
    from tidegate.flow.presence.keys import PresenceKeys
    from tidegate.flow.presence.presence import Expiry, Member, Presence
    from tidegate.flow.presence.settings import PresenceSettings

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
        "tidegate.flow.presence.election": "Elected Election Following",
        "tidegate.flow.presence.keys": "PresenceKeys",
        "tidegate.flow.presence.presence": "Expiry Member Presence",
        "tidegate.flow.presence.settings": "PresenceSettings",
    },
)
