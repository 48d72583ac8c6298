"""Tokens that are kept in memory only: those that a program supplies, and the token of the environment.

A process uses the token of the environment, such as GITHUB_TOKEN, while no stored credential serves all users. The
upstream may be unavailable when the process starts; then the token is tried again with growing pauses, and runs without
a credential wait for it instead of failing.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from datetime import timedelta

from tidegate.core.arguments import require_name
from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidArgument, InvalidSettings, NoCredential, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.credentials.manager import CredentialManager
from tidegate.engine.credentials.pools import token_variable
from tidegate.engine.upstream import UpstreamFailed
from tidegate.primitives.gate import CredentialLimits, Gate
from tidegate.runtime.waiting import occurs

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

    async def register(self, gate: Gate) -> None:
        """Register the tokens that were not rejected in the gate. Idempotent; correct at any time."""
        for name in self._secrets:
            await gate.register(name, pool=self.pool, limits=self._limits)

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


_AWAY = (UpstreamFailed, Unavailable)
"""Errors that pass, and say nothing about the token."""
_PAUSES = Backoff(first=timedelta(seconds=2), most=timedelta(minutes=2), jitter=0.5)


class EnvironmentToken:
    """The token of the environment for the source of a credential manager; a service that uses it as soon as possible.

    `on_used` is called when runs that wait for it can go on, or have to fail since it was refused.
    """

    def __init__(
        self, manager: CredentialManager, token: str, *, on_used: Callable[[], object], pauses: Backoff = _PAUSES
    ) -> None:
        self.variable = token_variable(manager.source)
        self._manager, self._token, self._on_used, self._pauses = manager, token, on_used, pauses
        self.reason = "it was not tried yet"
        """Why it is not used yet, for people."""
        self.is_awaited = True
        """Whether there may be a credential soon, though there is none now."""

    async def use(self) -> None:
        """Use it now. Raises `InvalidSettings` when it is refused, and what the upstream raises when it is away."""
        if not self.is_awaited:
            return
        try:
            await self._manager.borrow(self._token)
        except _AWAY as error:
            self.reason = redact_text(str(error))
            raise
        except InvalidSettings:
            self.is_awaited = False
            raise
        self.is_awaited = False

    async def try_now(self) -> None:
        """Use it now, if the upstream answers. Raises `InvalidSettings` when it is refused."""
        try:
            await self.use()
        except _AWAY:
            return

    async def run(self, stopping: asyncio.Event) -> None:
        """Try until it is used or refused, then wait for `stopping`."""
        tries = 0
        while self.is_awaited and not stopping.is_set():
            if tries:
                log.warning("credentials.environment_waits", variable=self.variable, tries=tries, error=self.reason)
            if tries and await occurs(stopping, within_s=self._pauses.delay(tries).total_seconds()):
                break
            tries += 1
            try:
                await self.use()
            except _AWAY:
                continue
            except InvalidSettings as error:
                log.error("credentials.environment_refused", variable=self.variable, error=redact_text(str(error)))
            else:
                log.info("credentials.environment_used", variable=self.variable)
            self._on_used()
        await stopping.wait()


def environment_token(source: str) -> str | None:
    """The token of the environment for a source; None where the variable is not set, or empty."""
    return os.environ.get(token_variable(source)) or None
