"""Membership of processes: leases show which of them are alive, and an election decides which one is the leader."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.primitives.membership.membership import (
        Elected,
        Election,
        Expiry,
        Following,
        Member,
        Membership,
        MembershipKeys,
    )
    from tidegate.primitives.settings import MembershipSettings

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
        "tidegate.primitives.membership.membership": (
            "Elected Election Following MembershipKeys Expiry Member Membership"
        ),
        "tidegate.primitives.settings": "MembershipSettings",
    },
)
