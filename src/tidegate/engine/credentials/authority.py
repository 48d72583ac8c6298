"""The upstream as far as credentials concern it; what is particular to one upstream is written beside its source."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from tidegate.core.errors import TidegateError, Unavailable


class SecretRefused(TidegateError):
    """The upstream said that a secret is no good; asking again with it changes nothing."""

    problem = "secret_refused"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the upstream refused it: {reason}")
        self.reason = reason


class NotNow(Unavailable):
    """The upstream would not be asked now, because of a limit. That says nothing of the secret."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"it cannot be checked now: {reason}")
        self.reason = reason

    @property
    def public_message(self) -> str:
        """The reason is that of the upstream."""
        return str(self)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the upstream rations."""

    allowance: str
    """The name of its allowance: the same for all secrets that share it, and never another's."""
    login: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one bucket."""

    limit: int
    remaining: int
    resets_at: datetime


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the upstream says of a secret that it takes."""

    account: Account | None
    """None where it could not be asked: nothing is left of the allowance."""
    scopes: Sequence[str] | None = None
    """What the secret may do; None where the upstream does not tell."""
    expires_at: datetime | None = None
    left: Mapping[str, Seen] = {}
    """By bucket."""


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """An app that somebody installed: tokens are issued to whoever has the app's key."""

    app_id: int
    installation_id: int


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that ends by itself. It is kept in memory only, and shown nowhere."""

    token: str
    lasts_s: float
    """From the moment it was issued, by the upstream's own clock."""

    def __repr__(self) -> str:
        return f"IssuedToken(lasts_s={self.lasts_s})"


class Authority(Protocol):
    """Knows whose secrets are, and issues tokens to apps.

    Raises `SecretRefused` where the upstream says no, `NotNow` where a limit is in the way, and `UpstreamFailed` where
    no answer came.
    """

    @property
    def audience(self) -> str:
        """Where secrets are sent: those that were stored for another place are not used here."""
        ...

    def account_of(self, installation: Installation) -> Account:
        """Whose allowance an installation's tokens spend."""
        ...

    async def check(self, secret: str, *, identify: bool) -> Checked:
        """Whether a token is good and what is left; `identify` asks for its account too, which costs a call."""
        ...

    async def issue(self, installation: Installation, private_key: str) -> IssuedToken:
        """A new token of an installation."""
        ...
