"""Tokens that a program supplies; they are kept in its memory only."""

from collections.abc import Mapping

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, NoCredential
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.gate import CredentialLimits, Gate

log = get_logger(__name__)


class Tokens:
    """The credentials of one pool, by name. The names appear in logs and in the gate, the secrets do not.

        Tokens("bookshop", {"first": token, "second": other_token})

    Each name stands for an allowance of its own: two secrets that share an allowance at the upstream must not be given
    under two names, because the gate would spend that allowance twice. Raises `InvalidArgument` without any secret.
    """

    def __init__(self, pool: str, secrets: Mapping[str, str], *, limits: CredentialLimits | None = None) -> None:
        self.pool = require_name("pool", pool)
        if not secrets:
            raise InvalidArgument("secrets", {}, "at least one is required; use an empty string for an open API")
        self._secrets = {require_name("credential", name): secret for name, secret in secrets.items()}
        self._limits = limits or CredentialLimits()

    async def enrol(self, gate: Gate) -> None:
        """Enrol the tokens that were not rejected in the gate. Idempotent; correct at any time."""
        for name in self._secrets:
            await gate.enrol(name, pool=self.pool, limits=self._limits)

    async def secret_of(self, credential: str) -> str:
        """Return a secret. Raises `NoCredential` if it is unknown, or if the upstream has rejected it."""
        if credential not in self._secrets:
            raise NoCredential(f"this process has no valid secret for {credential!r}")
        return self._secrets[credential]

    def refuse(self, credential: str, reason: str) -> bool:
        """Stop using a token that the upstream rejected. Returns whether another one is left."""
        if self._secrets.pop(credential, None) is not None:
            log.error("collect.token_refused", credential_name=credential, pool=self.pool, reason=reason)
        return bool(self._secrets)

    async def pool_for(self, user_id: str) -> str:
        """Return the pool. Raises `NoCredential` if the upstream has rejected all tokens."""
        if not self._secrets:
            raise NoCredential(f"there is no valid credential for {user_id!r}: all of {self.pool!r} were rejected")
        return self.pool

    def __repr__(self) -> str:
        return f"Tokens({self.pool!r}, {sorted(self._secrets)})"
