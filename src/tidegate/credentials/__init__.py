"""Whose tokens we may use: encrypted at rest, known to everybody else by names that tell nothing of them."""

from tidegate.credentials.authority import Account, Authority, Checked, Installation, IssuedToken, NotNow, SecretRefused
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
