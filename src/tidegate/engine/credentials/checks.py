"""Validates credentials that users enter, before they are stored, and describes the result of a check."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument
from tidegate.engine.credentials.authority import BucketReport, Installation, SecretReport

_LONGEST_TOKEN = 4_096
_LONGEST_KEY = 16_384


class CredentialCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a credential check."""

    name: str
    is_valid: bool | None
    """None if the upstream could not be asked."""
    reason: str | None = None
    """Why the check failed, or could not be made."""
    account: str
    scopes: Sequence[str] | None = None
    expires_at: datetime | None = None
    left: Mapping[str, BucketReport] = {}
    """The remaining calls per bucket."""


def details_of(checked: SecretReport | None, installation: Installation | None = None) -> dict[str, Any]:
    """The details that are stored beside a secret."""
    details: dict[str, Any] = {} if installation is None else msgspec.to_builtins(installation)
    if checked is not None and checked.scopes is not None:
        details["scopes"] = list(checked.scopes)
    if checked is not None and checked.expires_at is not None:
        details["expires_at"] = checked.expires_at.isoformat()
    return details


def require_text(name: str, value: str, most: int) -> str:
    """Return `value`; raises `InvalidArgument` if it is empty or longer than `most` characters."""
    if len(require_name(name, value)) > most:
        raise InvalidArgument(name, value[:32] + "…", f"must have at most {most} characters")
    return value


def require_token(secret: str) -> str:
    """Return the token without surrounding space; error messages never show it."""
    token = secret.strip()
    if not token:
        raise InvalidArgument("token", "", "must not be empty")
    if "PRIVATE KEY" in token:
        raise InvalidArgument("token", "…", "is a private key. Pass --app-id and --installation-id with it")
    if len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgument("token", "…", "must be one line of printable ASCII without spaces")
    return token


def require_private_key(secret: str) -> str:
    """Return an RSA key in PEM; error messages never show it."""
    try:
        key = load_pem_private_key(secret.strip().encode(), password=None) if len(secret) <= _LONGEST_KEY else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise InvalidArgument("private key", "…", "must be an RSA key in PEM, without a password")
    return secret.strip()
