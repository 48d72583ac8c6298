"""Which processes are alive, and which one of them leads."""

from tidegate.flow.presence.election import Elected, Election, Following
from tidegate.flow.presence.keys import PresenceKeys
from tidegate.flow.presence.presence import Lapse, Member, Presence
from tidegate.flow.presence.settings import PresenceSettings

__all__ = [
    "Elected",
    "Election",
    "Following",
    "Lapse",
    "Member",
    "Presence",
    "PresenceKeys",
    "PresenceSettings",
]
