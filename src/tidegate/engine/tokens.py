"""Secrets that a program brings along itself, kept in its memory alone."""

from collections.abc import Mapping

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, NoCredential
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.gate import CredentialLimits, Gate

log = get_logger(__name__)


class Tokens:
    """The credentials of one pool. Their names appear in logs and at the gate; their secrets nowhere.

    What the upstream rations is a credential: secrets that share one allowance there must not be two of them here.
    """

    def __init__(self, pool: str, secrets: Mapping[str, str], *, limits: CredentialLimits | None = None) -> None:
        self.pool = require_name("pool", pool)
        if not secrets:
            raise InvalidArgument("secrets", {}, "there must be at least one; of an open API, an empty text will do")
        self._secrets = {require_name("credential", name): secret for name, secret in secrets.items()}
        self._limits = limits or CredentialLimits()

    async def enrol(self, gate: Gate) -> None:
        """Let the pool use those that are not refused; always right, at any moment."""
        for name in self._secrets:
            await gate.enrol(name, pool=self.pool, limits=self._limits)

    async def secret_of(self, credential: str) -> str:
        """The secret itself; raise `NoCredential` where there is none, or the upstream has refused it."""
        if credential not in self._secrets:
            raise NoCredential(f"this process has no valid secret for {credential!r}")
        return self._secrets[credential]

    def refuse(self, credential: str, reason: str) -> bool:
        """The upstream does not take it: it is used no more. True if another one is left."""
        if self._secrets.pop(credential, None) is not None:
            log.error("collect.token_refused", credential_name=credential, pool=self.pool, reason=reason)
        return bool(self._secrets)

    async def pool_for(self, user_id: str) -> str:
        """Return the one pool; raise `NoCredential` where the upstream has refused all of it."""
        if not self._secrets:
            raise NoCredential(f"there is no valid credential for {user_id!r}: all of {self.pool!r} were refused")
        return self.pool

    def __repr__(self) -> str:
        return f"Tokens({self.pool!r}, {sorted(self._secrets)})"
