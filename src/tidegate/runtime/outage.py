"""The policy for servers that cannot be reached or refuse requests, used by every service.

A server that refuses (read-only, out of memory, full disk, wrong password) is handled like one that cannot be reached:

- A failed step is repeated after pauses that grow to 5 s, so work resumes within seconds of the server's return.
- The log has one line when the condition of a server changes, however many parts of the process meet it: `server.away`,
  `server.refused` with the remedy, and `server.back` when all parts that waited for it are served again.
- No service restarts, and no traceback is logged.
- A failure that only one item meets, while the same part is served for others, is about the item: `StepKeepsFailing`.
  The caller counts it like any other failure of the item, so nothing is repeated for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar
from weakref import WeakSet

from tidegate.core.arguments import require_name
from tidegate.core.backoff import OUTAGE_PAUSES, Backoff
from tidegate.core.errors import ServerRefused, TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.waiting import occurs

log = get_logger(__name__)

T = TypeVar("T")

_QUIET_S = 5.0
"""Minimum time between two log lines for the same reason, for a server that comes and goes."""
_STALE_S = 15.0
"""A part that met no failure for this long does not wait for the server: it was stopped, or its attempt hangs."""
_MOST_REASONS = 8
"""Bound of the reasons that are logged for one server during one outage."""


class StepKeepsFailing(TidegateError):
    """A step failed again and again while the same part of the process was served for others in between."""

    def __init__(self, error: Unavailable) -> None:
        super().__init__(f"{type(error).__name__}: {error}, while others were served")


class Outage:
    """Retries of one part of the process that needs a server; shared by all tasks of that part.

    outage = Outage("collect.commit")
    written = await outage.retry(lambda: database.transaction(write, rows))
    """

    def __init__(self, part: str, *, pauses: Backoff | None = None) -> None:
        self.part, self._pauses = require_name("part", part), pauses
        self._condition: ServerCondition | None = None
        self._is_failing = False
        self._ended_at = float("-inf")
        self._waiting = 0
        self._served = 0
        self.noted_at = float("-inf")
        """When the last failed attempt ended, in seconds of the monotonic clock."""

    @property
    def lasts(self) -> bool:
        """Whether the last attempt failed."""
        return self._is_failing

    async def retry(
        self,
        step: Callable[[], Awaitable[T]],
        *,
        stopping: asyncio.Event | None = None,
        within_s: float = float("inf"),
    ) -> T:
        """Return the result of `step`, which is repeated until the server serves it.

        A step that failed may have been executed, so it must be idempotent. When `stopping` is set, or after `within_s`
        seconds, the last error is raised; `StepKeepsFailing` if this part was served for others between two failures.
        """
        tries, deadline = 0, monotonic() + within_s
        served, is_own = None, False
        self._waiting += 1
        try:
            while True:
                began = monotonic()
                try:
                    result = await step()
                except Unavailable as error:
                    tries += 1
                    # Another task of this part was served since the last failure, so the server is not the cause.
                    is_own = is_own or served not in (None, self._served)
                    served = self._served
                    is_stopping = await self.pause(error, tries, began=began, stopping=stopping)
                    if is_own and not is_stopping and monotonic() > deadline:
                        raise StepKeepsFailing(error) from error
                    if is_stopping or monotonic() > deadline:
                        raise
                else:
                    self._served += 1
                    self.over()
                    return result
        finally:
            self._waiting -= 1
            if not self._waiting:  # still noted: given up or cancelled
                self._leave()

    async def pause(
        self, error: Unavailable, tries: int, *, began: float | None = None, stopping: asyncio.Event | None = None
    ) -> bool:
        """Note the `tries`-th failed attempt in a row and wait. Returns whether `stopping` was set meanwhile.

        `began` is when the attempt began, in seconds of the monotonic clock. An attempt that began before another task
        of the part succeeded is not noted.
        """
        self._note(error, began, will_retry=True)
        pause_s = (self._pauses or OUTAGE_PAUSES).delay(tries).total_seconds()
        is_stopping = True
        try:
            if stopping is not None:
                is_stopping = await occurs(stopping, within_s=pause_s)
            else:
                await asyncio.sleep(pause_s)
                is_stopping = False
        finally:
            if is_stopping and not self._waiting:  # stopped or cancelled: this part does not try again
                self._leave()
        return is_stopping

    def note(self, error: Unavailable) -> None:
        """Record a failed attempt that is not repeated here. It is logged if the condition of the server changed."""
        self._note(error, None, will_retry=False)

    def _note(self, error: Unavailable, began: float | None, *, will_retry: bool) -> None:
        now = monotonic()
        # An attempt that began before the server was back says nothing about its present state.
        if (now if began is None else began) < self._ended_at:
            return
        self._is_failing, self.noted_at = True, now
        # The condition is logged elsewhere, such as a full disk.
        if error.is_reported:
            return
        condition = conditions.setdefault(error.server, ServerCondition(error.server))
        # A part waits for one server at a time; now it is another one.
        if self._condition is not None and self._condition is not condition:
            self._leave()
        self._condition = condition
        condition.met(self, error, now, will_retry=will_retry)

    def over(self) -> None:
        """Record a successful attempt."""
        if self._is_failing:
            self._ended_at = monotonic()
            self._leave(is_served=True)

    def _leave(self, *, is_served: bool = False) -> None:
        self._is_failing = False
        if self._condition is not None:
            self._condition.left(self, monotonic(), is_served=is_served)
            self._condition = None


class ServerCondition:
    """What the log says about one server: the parts of this process that wait for it, and the reasons logged so far."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._parts: WeakSet[Outage] = WeakSet()
        self._names: set[str] = set()
        self._since = self._met_at = float("-inf")
        self._reasons: set[str] = set()
        self._is_served = False
        self._look_again: asyncio.TimerHandle | None = None
        self._logged_at: dict[str, float] = {}

    def met(self, outage: Outage, error: Unavailable, now: float, *, will_retry: bool) -> None:
        """A part met the outage. Parts that retry have to be served before the outage is over."""
        self._drop_stale(now)
        if not self._parts and (not self._reasons or now - self._met_at > _STALE_S):
            self._since, self._reasons, self._names = now, set(), set()
        self._met_at, self._is_served = now, False
        if will_retry:
            self._parts.add(outage)
        self._names.add(outage.part)
        reason = error.what if isinstance(error, ServerRefused) else ""
        # Each reason is logged once per outage.
        if reason in self._reasons or len(self._reasons) >= _MOST_REASONS:
            return
        if now - self._logged_at.get(reason, float("-inf")) < _QUIET_S:
            return
        self._reasons.add(reason)
        # Old entries are dropped here, so that the dictionary stays small.
        self._logged_at = {each: at for each, at in self._logged_at.items() if now - at < _QUIET_S} | {reason: now}
        said = str(error) or type(error).__name__
        if isinstance(error, ServerRefused):  # an operator has to change something
            log.error("server.refused", server=self._server, part=outage.part, error=said)
        else:
            log.warning("server.away", server=self._server, part=outage.part, error=said)

    def left(self, outage: Outage, now: float, *, is_served: bool) -> None:
        """A part is served again, or does not try again."""
        self._parts.discard(outage)
        self._is_served = self._is_served or is_served
        self._end_if_served(now)

    def _end_if_served(self, now: float) -> None:
        """Log the end of the outage, or look again when the last part may be one that does not try again."""
        self._drop_stale(now)
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None
        if not self._reasons:
            return
        if self._parts:
            stale_in_s = max(each.noted_at for each in self._parts) + _STALE_S - now
            # A part that does not try again never reports its end. It becomes stale, and this timer finds that.
            loop = asyncio.get_running_loop()
            self._look_again = loop.call_later(stale_in_s + 0.1, lambda: self._end_if_served(monotonic()))
            return
        self._reasons = set()
        if self._is_served:
            after_ms = round((now - self._since) * 1000)
            log.info("server.back", server=self._server, after_ms=after_ms, parts=sorted(self._names))

    def _drop_stale(self, now: float) -> None:
        for each in [each for each in self._parts if now - each.noted_at > _STALE_S]:
            self._parts.discard(each)


conditions: dict[str, ServerCondition] = {}
"""By the name of the server. A process has few."""


def outage_in(error: BaseException) -> Unavailable | None:
    """Return the outage that an error is, or that all errors of a group are; None where a defect may be among them."""
    if isinstance(error, Unavailable):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = [outage_in(each) for each in error.exceptions]
        return found[0] if all(found) else None
    return None
