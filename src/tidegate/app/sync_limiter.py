"""A blocking limiter, for programs without an event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from tidegate.connections import open_valkey
from tidegate.core.errors import GrantVoid
from tidegate.core.priority import Priority
from tidegate.primitives.limiter.ledger import Grant, LimiterStatus
from tidegate.primitives.limiter.limiter import Limiter
from tidegate.primitives.limiter.settings import LimiterSettings
from tidegate.settings import Settings

T = TypeVar("T")

_TRIES = 5
"""Attempts to use a permit before it expires, in case the thread gets no CPU time in between."""


class SyncLimiter:
    """A `Limiter` that blocks the calling thread. It is safe to use from several threads.

    Example:
        rules = LimiterSettings(limits=(Limit(name="second", permits=5, window=timedelta(seconds=1)),), rates=())
        with SyncLimiter("weather-api", rules) as limiter:
            answer = limiter.run(lambda: urlopen(url), "user:42")

    Limiters with the same name share their limits, in this process and in others, also with a `Limiter`.
    `settings` names the Valkey server; the default is the settings of the environment. The event loop that talks to the
    server runs in a thread of its own, from the beginning of the block to its end.
    """

    def __init__(self, name: str, rules: LimiterSettings, settings: Settings | None = None) -> None:
        self._name, self._rules, self._settings = name, rules, settings
        self._opened: Future[tuple[asyncio.AbstractEventLoop, Limiter, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name=f"limiter {name}", daemon=True)

    def __enter__(self) -> Self:
        """Connect. Raises `ValkeyUnavailable` when the server cannot be reached."""
        self._thread.start()
        self._opened.result()
        return self

    def __exit__(self, *_: object) -> None:
        loop, _limiter, closing = self._opened.result()
        # The event belongs to the loop of the other thread and must not be set from this one.
        loop.call_soon_threadsafe(closing.set)
        self._thread.join()

    def run(self, call: Callable[[], T], key: str = "", *, priority: Priority = Priority.HIGH, units: int = 1) -> T:
        """Wait for a permit, and make the call while the permit is valid."""
        for attempt in range(1, _TRIES + 1):
            grant = self.acquire(key, priority=priority, units=units)
            try:
                # The permit starts to be valid on the other thread. It may expire before this thread runs.
                grant.use()
            except GrantVoid:
                if attempt == _TRIES:
                    raise
                continue
            break
        return call()

    def acquire(self, key: str = "", *, priority: Priority = Priority.HIGH, units: int = 1) -> Grant:
        """Wait for a permit; `use` it right before the call. See `Limiter.acquire`."""
        limiter = self._opened.result()[1]
        return self._wait_for(limiter.acquire(key, priority=priority, units=units))

    def status(self, key: str = "") -> LimiterStatus:
        """The current usage of all rules. See `Limiter.status`."""
        return self._wait_for(self._opened.result()[1].status(key))

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._opened.result()[0]).result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._opened.done():
                raise
            # The caller waits in `__enter__` and gets the reason there.
            self._opened.set_exception(error)

    async def _serve(self) -> None:
        async with open_valkey(self._settings or Settings.load()) as valkey:
            limiter, closing = Limiter(valkey, valkey.unit(self._name), settings=self._rules), asyncio.Event()
            self._opened.set_result((asyncio.get_running_loop(), limiter, closing))
            await closing.wait()
