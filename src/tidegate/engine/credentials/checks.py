"""What people enter, looked at before it is stored; and what the upstream says of it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument
from tidegate.engine.credentials.authority import Checked, Installation, Seen

_LONGEST_TOKEN = 4_096
_LONGEST_KEY = 16_384


class CredentialCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a test found."""

    name: str
    is_valid: bool | None
    """None where it could not be asked for."""
    reason: str | None = None
    """Why not."""
    account: str
    scopes: Sequence[str] | None = None
    expires_at: datetime | None = None
    left: Mapping[str, Seen] = {}
    """What is left of each bucket."""


def details_of(checked: Checked | None, installation: Installation | None = None) -> dict[str, Any]:
    """What is kept beside a secret."""
    details: dict[str, Any] = {} if installation is None else msgspec.to_builtins(installation)
    if checked is not None and checked.scopes is not None:
        details["scopes"] = list(checked.scopes)
    if checked is not None and checked.expires_at is not None:
        details["expires_at"] = checked.expires_at.isoformat()
    return details


def require_text(name: str, value: str, most: int) -> str:
    """A name of at most `most` characters."""
    if len(require_name(name, value)) > most:
        raise InvalidArgument(name, value[:32] + "…", f"must have at most {most} characters")
    return value


def require_token(secret: str) -> str:
    """A token without what surrounds it; nothing of it is shown where it is none."""
    token = secret.strip()
    if not token:
        raise InvalidArgument("token", "", "must not be empty")
    if "PRIVATE KEY" in token:
        raise InvalidArgument("token", "…", "is a private key. Say --app-id and --installation-id with it")
    if len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgument("token", "…", "must be one line of printable ASCII without spaces")
    return token


def require_private_key(secret: str) -> str:
    """An RSA key in PEM; nothing of it is shown where it is none."""
    try:
        key = load_pem_private_key(secret.strip().encode(), password=None) if len(secret) <= _LONGEST_KEY else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise InvalidArgument("private key", "…", "must be an RSA key in PEM, without a password")
    return secret.strip()
