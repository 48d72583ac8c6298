"""The token of the environment, such as GITHUB_TOKEN: used by a process while no stored credential serves all users.

It is kept in memory only. The upstream may be unavailable when the process starts; then the token is tried again with
growing pauses, and runs without a credential wait for it instead of failing.
"""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta

from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidSettings, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.credentials.manager import CredentialManager
from tidegate.engine.credentials.pools import token_variable
from tidegate.engine.upstream import UpstreamFailed
from tidegate.runtime.waiting import occurs

log = get_logger(__name__)

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
