"""Membership of processes: leases show which of them are alive, and an election decides which one is the leader."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.membership.election import Elected, Election, Following
    from tidegate.primitives.membership.keys import MembershipKeys
    from tidegate.primitives.membership.membership import Expiry, Member, Membership
    from tidegate.primitives.membership.settings import MembershipSettings

__all__ = [
    "Elected",
    "Election",
    "Expiry",
    "Following",
    "Member",
    "Membership",
    "MembershipKeys",
    "MembershipSettings",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.primitives.membership.election": "Elected Election Following",
        "tidegate.primitives.membership.keys": "MembershipKeys",
        "tidegate.primitives.membership.membership": "Expiry Member Membership",
        "tidegate.primitives.membership.settings": "MembershipSettings",
    },
)
