"""Guards calls to the Valkey server, and decides whether it is available: by the server, not by delays of this process.

A call that does not finish in time may have waited in this process or for the processor, and a connection may break
while the server is fine. So a failed call counts against the server only if the server does not answer a PING either.
The time that commands of this process wait for each other, and the time for which the event loop was blocked, are not
counted.

While the server fails or refuses writes, one task tries it: when the breaker allows it, otherwise with growing pauses.
Only that task declares the server available again, so one success among many failures wakes no waiting reader.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from typing import TypeVar

from tidegate.core.backoff import Backoff
from tidegate.core.errors import CircuitOpen, ServerRefused, TidegateError, Unavailable, ValkeyUnavailable
from tidegate.primitives.circuit_breaker import CircuitBreaker, CircuitBreakerState
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, time_limit
from tidegate.storage.valkey import Unit, Valkey

T = TypeVar("T")

_PING_WITHIN_S = 2.0
"""Longer than a call: a new connection needs several round trips before the PING is answered."""
_PAUSES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=2), jitter=0.5)


class ServerBusy(Unavailable):
    """The call failed although the server answers: the server or this process was too slow."""


class _ServerAnswers(Exception):
    """A failed call to a server that answers, inside the breaker: it is not a failure of the server."""


class ServerState(Enum):
    """Availability of the server."""

    AVAILABLE = auto()
    UNCERTAIN = auto()
    """A call failed a moment ago, the server refuses writes, or it is being tried: it may be available soon."""
    UNAVAILABLE = auto()
    """Calls failed repeatedly; the breaker is open."""


class ValkeyGuard:
    """Runs the calls of this process to the Valkey server behind a circuit breaker."""

    def __init__(self, valkey: Valkey, breaker: CircuitBreaker, unit: Unit) -> None:
        """`unit`: where the probe writes, so that it is refused like the writes of snapshots."""
        self._valkey, self._breaker, self._probe = valkey, breaker, unit.key("probe")
        self._outage = Outage("snapshots")
        self._has_failed, self._refuses = False, False
        self._pinging: asyncio.Task[bool] | None = None
        self._trial: asyncio.Task[None] | None = None
        self.on_return: list[Callable[[], object]] = []
        """Called when the server is available again."""

    @property
    def state(self) -> ServerState:
        """Current state of the server."""
        match self._breaker.state:
            case CircuitBreakerState.CLOSED:
                return ServerState.UNCERTAIN if self._has_failed or self._refuses else ServerState.AVAILABLE
            case CircuitBreakerState.TRYING:
                return ServerState.UNCERTAIN
            case CircuitBreakerState.OPEN:
                return ServerState.UNAVAILABLE

    async def call(self, work: Callable[[], Awaitable[T]], *, within_s: float) -> T:
        """Run a call to the server.

        Raises `CircuitOpen` without trying, `ValkeyUnavailable` if the server is unavailable, `ServerBusy` if the call
        failed although the server answers, and `ServerRefused` if the server refuses it.
        """
        try:
            with self._breaker.attempt():
                return await self._attempt(work, within_s)
        except _ServerAnswers as failed:
            # Converted outside the breaker, which counts only errors that are `Unavailable` inside it.
            raise ServerBusy(str(failed)) from failed.__cause__
        except CircuitOpen:
            raise
        except ServerRefused as error:
            self._refuses = True
            self._keep_trying(error)
            raise
        except Unavailable as error:
            self._has_failed = True
            self._keep_trying(error)
            raise

    async def close(self) -> None:
        """Stop the background tasks."""
        await end(*(each for each in (self._trial, self._pinging) if each is not None))

    async def _attempt(self, work: Callable[[], Awaitable[T]], within_s: float) -> T:
        try:
            async with time_limit(within_s, heard_at=lambda: self._valkey.queued_until_s):
                return await work()
        except ServerRefused:
            raise
        except (Unavailable, OSError, TimeoutError) as error:
            what = str(error) or f"no answer within {within_s:g} s"
            # A slow call to a server that answers must not open the breaker for all other calls.
            if await self._answers():
                raise _ServerAnswers(f"{self._valkey.address}: {what}; the server answers PING") from error
            raise ValkeyUnavailable(f"{self._valkey.address}: {what}") from error

    async def _answers(self) -> bool:
        """Return whether the server answers a PING; concurrent callers share one PING."""
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.create_task(self._ping(), name="ping the server")
        # Shielded: a cancelled caller must not cancel the PING of the others.
        return await asyncio.shield(self._pinging)

    async def _ping(self) -> bool:
        try:
            async with time_limit(_PING_WITHIN_S):
                await self._valkey.ping()
        except (TidegateError, TimeoutError):
            return False
        return True

    def _keep_trying(self, error: Unavailable) -> None:
        self._outage.note(error)
        if self._trial is None or self._trial.done():
            self._trial = asyncio.create_task(self._try_until_available(), name="try the server")

    async def _try_until_available(self) -> None:
        """Probe the server until it answers, and accepts writes if it refused them; then report its return."""
        tries = 0
        while self._has_failed or self._refuses:
            if (left_s := self._breaker.pause_left_s) > 0:  # checked again, because a timer may end early
                await asyncio.sleep(left_s)
                continue
            tries += 1
            if self._breaker.state is not CircuitBreakerState.OPEN:
                await asyncio.sleep(_PAUSES.delay(tries).total_seconds())
            # As many trials as the breaker requires to close.
            succeeded = await asyncio.gather(*(self._succeeds(self._valkey.ping) for _ in range(self._breaker.wanted)))
            # Concurrent calls may have failed meanwhile and opened the breaker again.
            if not all(succeeded) or self._breaker.state is not CircuitBreakerState.CLOSED:
                continue
            self._has_failed = False
            # A server that refuses writes still answers PING, so a write has to succeed as well.
            if self._refuses and await self._succeeds(self._write):
                self._refuses = False
        self._outage.over()
        for callback in self.on_return:
            callback()

    async def _succeeds(self, work: Callable[[], Awaitable[object]]) -> bool:
        with suppress(Exception):  # after any error the next trial may succeed
            await self.call(work, within_s=_PING_WITHIN_S)
            return True
        return False

    async def _write(self) -> None:
        """Write without effect: refused by a server that is read-only, out of memory or cannot save."""
        await self._valkey.execute("SETRANGE", self._probe, 0, b"")
