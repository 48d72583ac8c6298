"""Renews a token that expires: issued at its first use, renewed before its end, one renewal at a time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.errors import TidegateError
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.credentials.authority import IssuedToken, SecretRefused, SecretUncheckable
from tidegate.engine.upstream import UpstreamFailed

log = get_logger(__name__)

_PAUSES = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=2))
_LONGEST_MARGIN_S = 30.0
_PROBATION_S = 30.0
"""If the successor of a rejected token is rejected within this time, no further token is issued."""


class _Current(msgspec.Struct, frozen=True):
    token: str
    issued_at: float
    renew_at: float
    useless_at: float

    def __repr__(self) -> str:
        return "_Current(…)"


class RenewedToken:
    """The current token of one installation, in memory.

    It is renewed after 70 to 90 % of its life, at random, so that processes that started together do not renew
    together. The old token is used during a renewal until shortly before it expires, so renewals delay no caller.
    """

    def __init__(self, name: str, issue: Callable[[], Awaitable[IssuedToken]]) -> None:
        self._name, self._issue = name, issue
        self._current: _Current | None = None
        self._renewing: asyncio.Task[str] | None = None
        self._failures, self._not_before = 0, 0.0
        self._last_error: TidegateError | None = None
        self._was_refused = False

    async def get(self) -> str:
        """Return a valid token; raises what the issuer raises."""
        now, current = monotonic(), self._current
        if current is None or now >= current.useless_at:
            if now < self._not_before:  # back-off after a failed renewal, for all callers
                raise SecretUncheckable(f"no new token could be had: {_told(self._last_error)}")
            # Shielded, because other callers wait for the same renewal.
            return await asyncio.shield(self._begin())
        if now >= current.renew_at and now >= self._not_before:
            self._begin()
        return current.token

    def refuse(self, token: str) -> bool:
        """Drop `token`, which the upstream rejected. False if a new one would be rejected too."""
        current = self._current
        if current is None or current.token != token:
            return True
        if self._was_refused and monotonic() - current.issued_at < _PROBATION_S:
            return False
        self._current, self._was_refused = None, True
        return True

    def is_current(self, token: str) -> bool:
        """Whether `token` is the one in use."""
        return self._current is not None and self._current.token == token

    @property
    def renewing(self) -> asyncio.Task[str] | None:
        """The renewal in progress, or None."""
        return None if self._renewing is None or self._renewing.done() else self._renewing

    def _begin(self) -> asyncio.Task[str]:
        task = self.renewing
        if task is None:
            task = self._renewing = asyncio.create_task(self._renew(), name=f"renew {self._name}")
            task.add_done_callback(_seen)
        return task

    async def _renew(self) -> str:
        # The life of the token is counted from the request, so that a slow answer does not extend it.
        asked_at = monotonic()
        try:
            issued = await self._issue()
        except TidegateError as error:
            self._failures, self._last_error = self._failures + 1, error
            self._not_before = monotonic() + _PAUSES.delay(self._failures).total_seconds()
            is_final = isinstance(error, SecretRefused)
            log.warning("credentials.renewal_failed", credential_name=self._name, final=is_final, error=str(error))
            raise
        margin_s = min(_LONGEST_MARGIN_S, issued.lasts_s / 10)
        share = 0.7 + 0.2 * random.random()  # noqa: S311 - spreads load, guards nothing
        self._current = _Current(
            issued.token, asked_at, asked_at + share * issued.lasts_s, asked_at + issued.lasts_s - margin_s
        )
        self._failures, self._not_before = 0, 0.0
        metrics.CREDENTIAL_TOKENS_ISSUED.inc()
        log.info("credentials.token_issued", credential_name=self._name, lasts_s=round(issued.lasts_s))
        return issued.token


def _seen(task: asyncio.Task[str]) -> None:
    """Retrieve the error of a renewal that was not awaited, so that asyncio does not report it; it was logged."""
    if not task.cancelled():
        task.exception()


def _told(error: TidegateError | None) -> str:
    """The text of an error for callers, without the address of the upstream."""
    return error.summary if isinstance(error, UpstreamFailed) else str(error)
