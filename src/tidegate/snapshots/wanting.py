"""Asking for refreshes on behalf of readers, who never wait for it: in the background, and once for many readers."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import msgspec

from tidegate.kernel.clock import monotonic_ms
from tidegate.kernel.errors import TidegateError
from tidegate.snapshots.local import Place
from tidegate.snapshots.requests import UpdateRequests, Wish
from tidegate.snapshots.transport import GROUPS, Topic, Transport
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

_ASK_AGAIN_MS = 5_000.0
"""News of the refresh ends the wait for it. Where none comes, its lock decides whether it is asked for again."""
_TRY_AGAIN_MS = 1_000.0
_MOST_REMEMBERED = 100_000
_FIRST_GUESS_MS = 500.0
_WEIGHT = 0.1
_LAG_KNOWN_FOR_MS = 1_000.0


class _Asked(msgspec.Struct):
    at_ms: float
    until_ms: float
    is_queued: bool = True
    """So we believe until we hear otherwise."""


class Wanting:
    """Which refreshes this process has asked for, and how long they take."""

    def __init__(
        self,
        requests: UpdateRequests,
        transport: Transport,
        *,
        calls_per_second: float,
        now_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        self._requests, self._transport, self._now_ms = requests, transport, now_ms
        self._per_second = calls_per_second
        self._asked: dict[Place, _Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._usual_ms = _FIRST_GUESS_MS
        self._lag, self._lag_at_ms = 0, float("-inf")

    def want(self, wish: Wish) -> bool:
        """Have it asked for, unless it was a moment ago; whether it is queued, as far as is known."""
        place, now_ms = (wish.subject.kind, wish.subject.key), self._now_ms()
        asked = self._asked.get(place)
        if asked is not None and now_ms < asked.until_ms:
            return asked.is_queued
        if len(self._asked) >= _MOST_REMEMBERED:
            self._asked = {each: entry for each, entry in self._asked.items() if now_ms < entry.until_ms}
        asked = self._asked[place] = _Asked(now_ms, now_ms + _ASK_AGAIN_MS)
        self._begin(self._ask(wish, asked))
        return True

    def estimate_ms(self) -> int:
        """How long a refresh that is queued now takes, about."""
        if self._now_ms() - self._lag_at_ms > _LAG_KNOWN_FOR_MS:
            self._lag_at_ms = self._now_ms()
            self._begin(self._look_at_the_lag())
        return round(self._usual_ms + self._lag / self._per_second * 1000)

    def hear(self, moved: Collection[str] | None) -> None:
        """These were refreshed; None: any may have been."""
        if moved is None:
            self._asked.clear()
            return
        for subject_id in moved:
            kind, _, key = subject_id.partition("/")
            if (asked := self._asked.pop((kind, key), None)) is not None and asked.is_queued:
                self._usual_ms += _WEIGHT * (self._now_ms() - asked.at_ms - self._usual_ms)

    async def close(self) -> None:
        """Wait until everything was asked for."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, wish: Wish, asked: _Asked) -> None:
        try:
            await self._requests.ask(wish)
        except TidegateError as error:
            log.info("snapshots.ask_failed", subject=wish.subject.id, error=str(error))
            asked.is_queued, asked.until_ms = False, self._now_ms() + _TRY_AGAIN_MS

    async def _look_at_the_lag(self) -> None:
        try:
            self._lag = await self._transport.lag(Topic.HIGH, GROUPS[Topic.HIGH])
        except TidegateError:
            return  # the last one known is as good a guess as any
