"""Asking for a refresh: one lock per subject decides who publishes.

On streams, lock and event are one step. On other transports there are three, and a caller that cannot publish lets go
of the lock:

    lock and version -> published -> confirmed

Older events of the subject are obsolete with the last step, and not before. A process may die between any two of them:
then an event that was queued before is done all the same.

Asking for refreshes on behalf of readers, who never wait for it: in the background, and together.

However many read one subject, it is asked for once; subjects that are read in one moment are asked for in one step.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.batching import Batcher
from tidegate.core.clock import Clock, SystemClock, monotonic_ms
from tidegate.core.errors import InvalidArgument, TidegateError, Unavailable
from tidegate.core.ids import new_id
from tidegate.core.priority import Priority
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer, Draft, Outcome, Published, Upgraded
from tidegate.runtime.outage import Outage
from tidegate.storage.valkey import Key
from tidegate.systems.snapshots import tracing
from tidegate.systems.snapshots.cache import CacheKey
from tidegate.systems.snapshots.events import Reason, RefreshEvent
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic, Transport, topic_for
from tidegate.systems.snapshots.transports.streams import KEY_FIELD, VALUE_FIELD
from tidegate.systems.snapshots.valkey_guard import ValkeyGuard

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

log = get_logger(__name__)

_WITHIN_S = 5.0
"""How long the server may take to give locks."""


class RefreshRequest(msgspec.Struct, frozen=True, kw_only=True):
    """That a subject be refreshed."""

    subject: SnapshotSubject
    priority: Priority
    reason: Reason
    known_version: int = 0
    """The version of the subject's row, so that versions grow also where the server lost its data."""
    upstream_id: str | None = None
    correlation_id: str | None = None


class RefreshPublisher:
    """The one way to an event: nothing is published without the subject's lock."""

    def __init__(
        self, coalescer: Coalescer, transport: Transport, server: ValkeyGuard, *, clock: Clock | None = None
    ) -> None:
        self._coalescer, self._transport, self._server = coalescer, transport, server
        self._clock = clock or SystemClock()
        self._outage = Outage("snapshots.publish")

    async def ask(self, wish: RefreshRequest) -> Outcome:
        """Publish the wish, unless it is published already; raises `Unavailable` where that is not possible now."""
        [outcome] = await self.ask_many([wish])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def ask_many(self, wishes: Sequence[RefreshRequest]) -> list[Outcome | TidegateError]:
        """The same for many at once; an error stands in the place of its outcome."""
        outcomes: dict[int, Outcome | TidegateError] = {}
        for priority in Priority:
            ours = [(n, wish) for n, wish in enumerate(wishes) if wish.priority is priority]
            if ours:
                asked = await self._ask(topic_for(priority), [wish for _, wish in ours])
                outcomes |= {n: outcome for (n, _), outcome in zip(ours, asked, strict=True)}
        return [outcomes[n] for n in range(len(wishes))]

    async def _ask(self, topic: RefreshTopic, wishes: Sequence[RefreshRequest]) -> Sequence[Outcome | TidegateError]:
        """Of one priority. Where one of them cannot be, each by itself."""
        stream = self._transport.stream_of(topic)
        try:
            if stream is not None:
                return await self._publish_on_stream(stream, wishes)
            wanted = [(wish.subject.id, wish.priority, wish.known_version) for wish in wishes]
            locked = await self._server.call(lambda: self._coalescer.request_many(wanted), within_s=_WITHIN_S)
        except InvalidArgument as error:
            return [error] if len(wishes) == 1 else [(await self._ask(topic, [wish]))[0] for wish in wishes]
        except TidegateError as error:
            return [error] * len(wishes)
        granted = [
            (wish, outcome)
            for wish, outcome in zip(wishes, locked, strict=True)
            if isinstance(outcome, Published | Upgraded)
        ]
        if granted and (error := await self._publish(topic, granted)):
            return [error if isinstance(outcome, Published | Upgraded) else outcome for outcome in locked]
        return locked

    async def _publish_on_stream(self, stream: Key, wishes: Sequence[RefreshRequest]) -> list[Outcome]:
        """Locks and events in one step."""
        traced = [(wish, *self._traced(wish)) for wish in wishes]
        drafts = [
            Draft(
                wish.subject.id,
                wish.priority,
                wish.known_version,
                (KEY_FIELD, wish.subject.id, VALUE_FIELD),
                self._event(wish, correlation_id).encode_without_version(),
            )
            for wish, correlation_id, _ in traced
        ]
        outcomes = await self._server.call(lambda: self._coalescer.publish_many(stream, drafts), within_s=_WITHIN_S)
        for (_, _, span), outcome in zip(traced, outcomes, strict=True):
            if span is not None and isinstance(outcome, Published | Upgraded):
                tracing.end_request(span, outcome.version)
        return outcomes

    async def _publish(
        self, topic: RefreshTopic, granted: Sequence[tuple[RefreshRequest, Published | Upgraded]]
    ) -> TidegateError | None:
        """Publish what we have the locks for, and confirm it; if that fails, let go of them, and tell why."""
        messages = [(wish.subject.id, self._published(wish, outcome.version)) for wish, outcome in granted]
        try:
            await self._transport.publish(topic, messages)
        except TidegateError as error:
            metrics.PRODUCER_SEND_FAILED.inc(len(messages))
            if isinstance(error, Unavailable):
                self._outage.note(error)
            else:
                log.warning("snapshots.publish_failed", events=len(messages), error=str(error))
            await asyncio.gather(*(self._let_go(wish.subject, outcome.version) for wish, outcome in granted))
            return error
        self._outage.over()
        await self._confirm([(wish.subject.id, outcome.version) for wish, outcome in granted])
        return None

    async def _confirm(self, published: Sequence[tuple[str, int]]) -> None:
        try:
            await self._server.call(lambda: self._coalescer.confirm_many(published), within_s=_WITHIN_S)
        except Unavailable as error:  # what was queued before is done too, which costs a call and changes nothing
            self._outage.note(error)
        except TidegateError as error:
            log.info("snapshots.confirm_failed", events=len(published), error=str(error))

    async def _let_go(self, subject: SnapshotSubject, version: int) -> None:
        try:
            await self._coalescer.release(subject.id, version)
        except Unavailable:
            return  # it ends by itself, in half a minute

    def _published(self, wish: RefreshRequest, version: int) -> bytes:
        correlation_id, span = self._traced(wish)
        if span is not None:
            tracing.end_request(span, version)
        return msgspec.structs.replace(self._event(wish, correlation_id), version=version).encode()

    def _traced(self, wish: RefreshRequest) -> "tuple[str | None, tracing.Span | None]":
        """What the event is correlated by, and the span of its request, to be ended if it is published."""
        if wish.correlation_id is not None:
            return wish.correlation_id, None
        span = tracing.begin_request(wish.subject, wish.priority, wish.reason)
        return (None, None) if span is None else (span.traceparent, span)

    def _event(self, wish: RefreshRequest, correlation_id: str | None) -> RefreshEvent:
        return RefreshEvent(
            event_id=new_id(),
            subject_id=wish.subject.id,
            priority=wish.priority,
            reason=wish.reason,
            requested_at=self._clock.now(),
            version=1,
            correlation_id=correlation_id,
            upstream_id=wish.upstream_id,
        )


_ASK_AGAIN_MS = 5_000.0
"""News of the refresh ends the wait for it. Where none comes, its lock decides whether it is asked for again."""
_TRY_AGAIN_MS = 1_000.0
_MOST_REMEMBERED = 100_000
_FIRST_GUESS_MS = 500.0
_WEIGHT = 0.1
_LAG_KNOWN_FOR_MS = 1_000.0
_MOST_AT_ONCE, _UNDER_WAY = 500, 4


class _RecentRequest(msgspec.Struct):
    at_ms: float
    until_ms: float
    is_queued: bool = True
    """So we believe until we hear otherwise."""


_QueuedRequest = tuple[RefreshRequest, _RecentRequest, "Span | None"]


class BackgroundRequests:
    """Which refreshes this process has asked for, and how long they take."""

    def __init__(
        self,
        requests: RefreshPublisher,
        transport: Transport,
        *,
        calls_per_second: float,
        now_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        self._requests, self._transport, self._now_ms = requests, transport, now_ms
        self._per_second = calls_per_second
        self._outage = Outage("snapshots.ask")
        self._asked: dict[CacheKey, _RecentRequest] = {}
        self._batcher: Batcher[_QueuedRequest] = Batcher(self._ask, most=_MOST_AT_ONCE, under_way=_UNDER_WAY)
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_retry: Callable[[Collection[str]], object] = _ignore_retry
        """Told of subjects that could not be asked for, when they may be asked for again."""
        self._usual_ms = _FIRST_GUESS_MS
        self._lag, self._lag_at_ms = 0, float("-inf")
        self._is_failing = False

    def want(self, wish: RefreshRequest) -> bool:
        """Have it asked for, unless it was a moment ago; whether it is queued, as far as is known."""
        place, now_ms = (wish.subject.kind, wish.subject.key), self._now_ms()
        asked = self._asked.get(place)
        if asked is not None and now_ms < asked.until_ms:
            return asked.is_queued
        if len(self._asked) >= _MOST_REMEMBERED:
            self._asked = {each: entry for each, entry in self._asked.items() if now_ms < entry.until_ms}
        asked = self._asked[place] = _RecentRequest(now_ms, now_ms + _ASK_AGAIN_MS)
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

    async def _ask(self, wanted: list[_QueuedRequest]) -> None:
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
            self._lag = await self._transport.lag(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])
        except TidegateError:
            return  # the last one known is as good a guess as any


def _ignore_retry(_: Collection[str]) -> None:
    """Nothing waits."""
