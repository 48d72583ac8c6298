"""Credentials: tokens and apps, encrypted at rest, and referred to by opaque names everywhere else."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.engine.credentials.authority import (
        Account,
        Authority,
        CredentialCheck,
        Installation,
        IssuedToken,
        SecretRefused,
        SecretReport,
        SecretUncheckable,
    )
    from tidegate.engine.credentials.keys import KeySource
    from tidegate.engine.credentials.manager import CredentialManager
    from tidegate.engine.credentials.opening import Rotation
    from tidegate.engine.credentials.pools import how_to_get_one, pool_of, token_variable
    from tidegate.engine.credentials.records import (
        AllowanceElsewhere,
        Credential,
        CredentialKind,
        CredentialState,
        NameTaken,
    )
    from tidegate.engine.credentials.vault import CannotDecrypt

__all__ = [
    "Account",
    "AllowanceElsewhere",
    "Authority",
    "CannotDecrypt",
    "Credential",
    "CredentialCheck",
    "CredentialKind",
    "CredentialManager",
    "CredentialState",
    "Installation",
    "IssuedToken",
    "KeySource",
    "NameTaken",
    "Rotation",
    "SecretRefused",
    "SecretReport",
    "SecretUncheckable",
    "how_to_get_one",
    "pool_of",
    "token_variable",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.engine.credentials.authority": (
            "Account Authority CredentialCheck Installation IssuedToken SecretRefused SecretReport SecretUncheckable"
        ),
        "tidegate.engine.credentials.manager": "CredentialManager",
        "tidegate.engine.credentials.keys": "KeySource",
        "tidegate.engine.credentials.pools": "how_to_get_one pool_of token_variable",
        "tidegate.engine.credentials.records": "AllowanceElsewhere Credential CredentialKind NameTaken CredentialState",
        "tidegate.engine.credentials.opening": "Rotation",
        "tidegate.engine.credentials.vault": "CannotDecrypt",
    },
)
