"""Asking for refreshes on behalf of readers, who never wait for it: in the background, and together.

However many read one subject, it is asked for once; subjects that are read in one moment are asked for in one step.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.batching import Batcher
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.coalescer import AlreadyProcessing, Outcome
from tidegate.runtime.outage import Outage
from tidegate.systems.snapshots import tracing
from tidegate.systems.snapshots.local import Place
from tidegate.systems.snapshots.requests import UpdateRequests, Wish
from tidegate.systems.snapshots.transport import GROUPS, Topic, Transport

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

log = get_logger(__name__)

_ASK_AGAIN_MS = 5_000.0
"""News of the refresh ends the wait for it. Where none comes, its lock decides whether it is asked for again."""
_TRY_AGAIN_MS = 1_000.0
_MOST_REMEMBERED = 100_000
_FIRST_GUESS_MS = 500.0
_WEIGHT = 0.1
_LAG_KNOWN_FOR_MS = 1_000.0
_MOST_AT_ONCE, _UNDER_WAY = 500, 4


class _Asked(msgspec.Struct):
    at_ms: float
    until_ms: float
    is_queued: bool = True
    """So we believe until we hear otherwise."""


_Wanted = tuple[Wish, _Asked, "Span | None"]


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
        self._outage = Outage("snapshots.ask")
        self._asked: dict[Place, _Asked] = {}
        self._batcher: Batcher[_Wanted] = Batcher(self._ask, most=_MOST_AT_ONCE, under_way=_UNDER_WAY)
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_retry: Callable[[Collection[str]], object] = _nothing
        """Told of subjects that could not be asked for, when they may be asked for again."""
        self._usual_ms = _FIRST_GUESS_MS
        self._lag, self._lag_at_ms = 0, float("-inf")
        self._is_failing = False

    def want(self, wish: Wish) -> bool:
        """Have it asked for, unless it was a moment ago; whether it is queued, as far as is known."""
        place, now_ms = (wish.subject.kind, wish.subject.key), self._now_ms()
        asked = self._asked.get(place)
        if asked is not None and now_ms < asked.until_ms:
            return asked.is_queued
        if len(self._asked) >= _MOST_REMEMBERED:
            self._asked = {each: entry for each, entry in self._asked.items() if now_ms < entry.until_ms}
        asked = self._asked[place] = _Asked(now_ms, now_ms + _ASK_AGAIN_MS)
        # The trace of the reader: the request is made for many together.
        span = tracing.begin_request(wish.subject, wish.priority, wish.reason)
        if span is not None:
            wish = msgspec.structs.replace(wish, correlation_id=span.traceparent)
        self._batcher.add((wish, asked, span))
        return True

    def estimate_ms(self) -> int:
        """How long a refresh that is queued now takes, about."""
        if self._now_ms() - self._lag_at_ms > _LAG_KNOWN_FOR_MS:
            self._lag_at_ms = self._now_ms()
            task = asyncio.create_task(self._look_at_the_lag())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
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
        await self._batcher.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def forget_failures(self) -> None:
        """What could not be asked for may be asked for again at once: the server is back."""
        self._asked = {place: asked for place, asked in self._asked.items() if asked.is_queued}

    async def _ask(self, wanted: list[_Wanted]) -> None:
        try:
            outcomes: Sequence[Outcome | Exception] = await self._requests.ask_many([wish for wish, _, _ in wanted])
        except Exception as error:
            outcomes = [error] * len(wanted)
        self._tell([outcome for outcome in outcomes if isinstance(outcome, Exception)])
        failed: list[str] = []
        for (wish, asked, span), outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Exception):
                asked.is_queued, asked.until_ms = False, self._now_ms() + _TRY_AGAIN_MS
                failed.append(wish.subject.id)
            elif span is not None and not isinstance(outcome, AlreadyProcessing):
                tracing.end_request(span, outcome.version)
        if failed:
            asyncio.get_running_loop().call_later(_TRY_AGAIN_MS / 1000, self.on_retry, failed)

    def _tell(self, errors: Sequence[Exception]) -> None:
        """Log when asking begins to fail: outages by the policy for servers, other errors with their own line."""
        if not errors:
            self._outage.over()
        elif isinstance(errors[0], Unavailable):
            self._outage.note(errors[0])
        elif not self._is_failing:
            log.info("snapshots.ask_failed", subjects=len(errors), error=str(errors[0]))
        self._is_failing = bool(errors)

    async def _look_at_the_lag(self) -> None:
        try:
            self._lag = await self._transport.lag(Topic.HIGH, GROUPS[Topic.HIGH])
        except TidegateError:
            return  # the last one known is as good a guess as any


def _nothing(_: Collection[str]) -> None:
    """Nothing waits."""
