"""Whose tokens we may use: encrypted at rest, known to everybody else by names that tell nothing of them."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.credentials.authority import (
        Account,
        Authority,
        Checked,
        Installation,
        IssuedToken,
        NotNow,
        SecretRefused,
    )
    from tidegate.credentials.book import CredentialBook
    from tidegate.credentials.checks import CredentialCheck
    from tidegate.credentials.keys import KeySource
    from tidegate.credentials.pools import GENERAL_POOL, pool_of
    from tidegate.credentials.records import AllowanceElsewhere, Credential, Kind, NameTaken, State
    from tidegate.credentials.rotation import Rotation
    from tidegate.credentials.vault import CannotOpen

__all__ = [
    "GENERAL_POOL",
    "Account",
    "AllowanceElsewhere",
    "Authority",
    "CannotOpen",
    "Checked",
    "Credential",
    "CredentialBook",
    "CredentialCheck",
    "Installation",
    "IssuedToken",
    "KeySource",
    "Kind",
    "NameTaken",
    "NotNow",
    "Rotation",
    "SecretRefused",
    "State",
    "pool_of",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.credentials.authority": "Account Authority Checked Installation IssuedToken NotNow SecretRefused",
        "tidegate.credentials.book": "CredentialBook",
        "tidegate.credentials.checks": "CredentialCheck",
        "tidegate.credentials.keys": "KeySource",
        "tidegate.credentials.pools": "GENERAL_POOL pool_of",
        "tidegate.credentials.records": "AllowanceElsewhere Credential Kind NameTaken State",
        "tidegate.credentials.rotation": "Rotation",
        "tidegate.credentials.vault": "CannotOpen",
    },
)
