"""A token that nobody could be asked about at the start, since the upstream was away: used as soon as it is back."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidSettings, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import redact_text
from tidegate.engine.credentials import CredentialBook
from tidegate.engine.upstream import UpstreamFailed
from tidegate.runtime.waiting import occurs
from tidegate.systems.github.settings import VARIABLE

log = get_logger(__name__)

AWAY = (UpstreamFailed, Unavailable)
"""What is wrong passes, and says nothing of the token."""
_PAUSES = Backoff(first=timedelta(seconds=2), most=timedelta(minutes=2), jitter=0.5)


class LateToken:
    """A service: tries again, with growing pauses, until the token is in use, or was refused."""

    def __init__(
        self,
        book: CredentialBook,
        token: str,
        error: Exception,
        on_used: Callable[[], object],
        pauses: Backoff = _PAUSES,
    ) -> None:
        self._book, self._token, self._on_used, self._pauses = book, token, on_used, pauses
        self.reason = redact_text(str(error))
        self.is_awaited = True
        """Whether there may be a credential soon, though there is none now."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Until it is settled, and then until we are told to stop."""
        tries = 0
        while self.is_awaited and not stopping.is_set():
            tries += 1
            log.warning("credentials.environment_waits", variable=VARIABLE, tries=tries, error=self.reason)
            if not await occurs(stopping, within_s=self._pauses.delay(tries).total_seconds()):
                await self._try()
        await stopping.wait()

    async def _try(self) -> None:
        try:
            await self._book.borrow(self._token)
        except AWAY as error:
            self.reason = redact_text(str(error))
            return
        except InvalidSettings as error:  # it was refused
            log.error("credentials.environment_refused", variable=VARIABLE, error=redact_text(str(error)))
        else:
            log.info("credentials.environment_used", variable=VARIABLE)
        self.is_awaited = False
        self._on_used()
