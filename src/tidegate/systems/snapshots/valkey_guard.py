"""Calls to the Valkey server, and whether it serves: judged by the server, not by the delays of this process.

A call that does not end in time may have waited for its turn in this process, or for the processor; a connection may
break while the server is fine. So a failed call counts against the server only if the server does not answer a PING
either. The time that commands of this process wait for each other, and the time for which the event loop was held up,
are not counted at all.

While the server fails or refuses writes, one task tries it: when the breaker allows it, and otherwise with growing
pauses. Only that task declares the server back, so one success among many failures wakes no waiting reader.
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
from tidegate.runtime.waiting import end, patience
from tidegate.storage.valkey import Unit, Valkey

T = TypeVar("T")

_PING_WITHIN_S = 2.0
"""A new connection takes a few answers before that of the PING."""
_PAUSES = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=2), jitter=0.5)


class ServerBusy(Unavailable):
    """The call failed although the server answers: the server or this process was too slow."""


class _StillThere(Exception):
    """A failed call to a server that answers, inside the breaker: it is not a failure of the server."""


class ServerState(Enum):
    """What is known of the server."""

    THERE = auto()
    DOUBTFUL = auto()
    """A call failed a moment ago, it refuses writes, or it is being tried: it may be back soon."""
    AWAY = auto()
    """It failed time after time, and is left alone for a while."""


class ValkeyGuard:
    """Stands between the server and the parts of this process that read copies and ask for refreshes."""

    def __init__(self, valkey: Valkey, breaker: CircuitBreaker, unit: Unit) -> None:
        """`unit`: of the keys whose writes matter."""
        self._valkey, self._breaker, self._probe = valkey, breaker, unit.key("probe")
        self._outage = Outage("snapshots")
        self._has_failed, self._refuses = False, False
        self._pinging: asyncio.Task[bool] | None = None
        self._trying: asyncio.Task[None] | None = None
        self.on_return: list[Callable[[], object]] = []
        """Called when the server serves again."""

    @property
    def standing(self) -> ServerState:
        """As far as is known now."""
        match self._breaker.state:
            case CircuitBreakerState.CLOSED:
                return ServerState.DOUBTFUL if self._has_failed or self._refuses else ServerState.THERE
            case CircuitBreakerState.TRYING:
                return ServerState.DOUBTFUL
            case CircuitBreakerState.OPEN:
                return ServerState.AWAY

    async def call(self, work: Callable[[], Awaitable[T]], *, within_s: float) -> T:
        """Do this on the server.

        Raises `CircuitOpen` without trying, `ValkeyUnavailable` where the server is away, `ServerBusy` where the call
        failed although it is there, and `ServerRefused` where it answers but will not do it.
        """
        try:
            with self._breaker.attempt():
                return await self._attempt(work, within_s)
        except _StillThere as still_there:
            raise ServerBusy(str(still_there)) from still_there.__cause__
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
        """End what goes on in the background."""
        await end(*(each for each in (self._trying, self._pinging) if each is not None))

    async def _attempt(self, work: Callable[[], Awaitable[T]], within_s: float) -> T:
        try:
            async with patience(within_s, heard_at=lambda: self._valkey.queued_until_s):
                return await work()
        except ServerRefused:
            raise
        except (Unavailable, OSError, TimeoutError) as error:
            what = str(error) or f"no answer within {within_s:g} s"
            if await self._answers():
                raise _StillThere(f"{self._valkey.address}: {what}; the server is there") from error
            raise ValkeyUnavailable(f"{self._valkey.address}: {what}") from error

    async def _answers(self) -> bool:
        """Whether the server answers at all; one question for all callers that want to know at the same time."""
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.create_task(self._ping(), name="ping the server")
        return await asyncio.shield(self._pinging)

    async def _ping(self) -> bool:
        try:
            async with patience(_PING_WITHIN_S):
                await self._valkey.ping()
        except (TidegateError, TimeoutError):
            return False
        return True

    def _keep_trying(self, error: Unavailable) -> None:
        self._outage.note(error)
        if self._trying is None or self._trying.done():
            self._trying = asyncio.create_task(self._try_until_it_serves(), name="try the server")

    async def _try_until_it_serves(self) -> None:
        tries = 0
        while self._has_failed or self._refuses:
            if (left_s := self._breaker.pause_left_s) > 0:  # looked at again: a timer may end a moment early
                await asyncio.sleep(left_s)
                continue
            tries += 1
            if self._breaker.state is not CircuitBreakerState.OPEN:
                await asyncio.sleep(_PAUSES.delay(tries).total_seconds())
            # As many trials as the breaker waits for; each says to the breaker how it ended.
            is_there = await asyncio.gather(*(self._succeeds(self._valkey.ping) for _ in range(self._breaker.wanted)))
            if not all(is_there) or self._breaker.state is not CircuitBreakerState.CLOSED:
                continue
            self._has_failed = False
            if self._refuses and await self._succeeds(self._write):
                self._refuses = False
        self._outage.over()
        for callback in self.on_return:
            callback()

    async def _succeeds(self, work: Callable[[], Awaitable[object]]) -> bool:
        with suppress(Exception):  # whatever it is, the next try may end otherwise
            await self.call(work, within_s=_PING_WITHIN_S)
            return True
        return False

    async def _write(self) -> None:
        """Refused like any write, by a server that is read-only, out of memory or cannot save; changes nothing."""
        await self._valkey.execute("SETRANGE", self._probe, 0, b"")
