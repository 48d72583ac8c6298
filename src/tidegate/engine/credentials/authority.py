"""What credentials need from an upstream: identify and check secrets, issue tokens. Implemented beside each source.

Secrets that users enter are validated before they are stored.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, TidegateError, Unavailable


class SecretRefused(TidegateError):
    """The upstream rejected a secret. The same secret will be rejected again."""

    problem = "secret_refused"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the upstream refused it: {reason}")
        self.reason = reason


class SecretUncheckable(Unavailable):
    """The upstream could not be asked because of a limit. The secret may be valid."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"it cannot be checked now: {reason}")
        self.reason = reason

    @property
    def public_message(self) -> str:
        """The message of the upstream, which callers may see."""
        return str(self)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account of the upstream, to which it applies its limits."""

    allowance: str
    """Name of its allowance. All secrets of the account share it; no other account has it."""
    login: str


class BucketReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the upstream reports about one bucket: its limit, the calls left and when the window ends."""

    limit: int
    remaining: int
    resets_at: datetime


class SecretReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the upstream reports about a secret that it accepts."""

    account: Account | None
    """None if the account could not be looked up because the allowance is exhausted."""
    scopes: Sequence[str] | None = None
    """What the secret may do; None if the upstream does not report it."""
    expires_at: datetime | None = None
    left: Mapping[str, BucketReport] = {}
    """The remaining calls per bucket."""


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """One installation of an app. Tokens are issued to holders of the app's key."""

    app_id: int
    installation_id: int


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that expires. It is kept in memory only and is never logged."""

    token: str
    lasts_s: float
    """Lifetime in seconds from the moment of issue, by the upstream's clock."""

    def __repr__(self) -> str:
        return f"IssuedToken(lasts_s={self.lasts_s})"


class Authority(Protocol):
    """Checks secrets, names their accounts and issues tokens of apps.

    Raises `SecretRefused` if the upstream rejects the secret, `SecretUncheckable` if a limit prevents the request, and
    `UpstreamFailed` if no answer arrived.
    """

    @property
    def audience(self) -> str:
        """The place that secrets are sent to. Secrets that were stored for another place are not used."""
        ...

    def account_of(self, installation: Installation) -> Account:
        """The account of an installation; its tokens spend the allowance of this account."""
        ...

    async def check(self, secret: str, *, identify: bool) -> SecretReport:
        """Check a token and read what is left; with `identify`, look up its account too, which costs a call."""
        ...

    async def issue(self, installation: Installation, private_key: str) -> IssuedToken:
        """Issue a new token for an installation."""
        ...


class TokenAuthority:
    """Accepts every token of one source. Tokens that share an allowance must be stored as one credential."""

    def __init__(self, source: str) -> None:
        self._source = source

    @property
    def audience(self) -> str:
        """The source, since its tokens are sent wherever it sends requests."""
        return self._source

    def account_of(self, installation: Installation) -> Account:
        """Raise `InvalidArgument`, because the source has no apps."""
        raise InvalidArgument("app", installation.app_id, f"the source {self._source!r} has no apps")

    async def check(self, secret: str, *, identify: bool) -> SecretReport:
        """Accept the token without a call, as that of the environment; stored tokens have allowances of their own."""
        del secret, identify
        return SecretReport(account=Account(allowance=f"environment@{self._source}", login=self._source))

    async def issue(self, installation: Installation, private_key: str) -> IssuedToken:
        """Raise `InvalidArgument`, because the source has no apps."""
        del private_key
        raise InvalidArgument("app", installation.app_id, f"the source {self._source!r} has no apps")


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
    # Imported here because most processes check no keys.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(secret.strip().encode(), password=None) if len(secret) <= _LONGEST_KEY else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise InvalidArgument("private key", "…", "must be an RSA key in PEM, without a password")
    return secret.strip()
