"""Requests refreshes: one lock per subject decides which request is published.

On streams, lock and event are one atomic step. On Kafka there are three steps, and a process that cannot publish
releases the lock:

    lock and version -> publish -> confirm

Older events of the subject become obsolete with the last step. If the process dies between two steps, an event that was
queued before is still processed.

Requests of readers are made in the background and in batches: readers do not wait for them, and concurrent reads of one
subject make one request.
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
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer, Draft, Outcome, Published, Upgraded
from tidegate.runtime.outage import Outage
from tidegate.storage.valkey import Key
from tidegate.systems.snapshots import events, metrics
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
"""Time limit of the Valkey server for locks."""


class RefreshRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which subject to refresh, and why."""

    subject: SnapshotSubject
    priority: Priority
    reason: Reason
    known_version: int = 0
    """The version of the subject's row, so that versions grow even if the server lost its data."""
    upstream_id: str | None = None
    correlation_id: str | None = None


class RefreshPublisher:
    """Publishes refresh events. Each event is published under the lock of its subject."""

    def __init__(
        self, coalescer: Coalescer, transport: Transport, server: ValkeyGuard, *, clock: Clock | None = None
    ) -> None:
        self._coalescer, self._transport, self._server = coalescer, transport, server
        self._clock = clock or SystemClock()
        self._outage = Outage("snapshots.publish")

    async def publish(self, request: RefreshRequest) -> Outcome:
        """Publish a request, unless a refresh of the subject is already queued or running.

        Raises `Unavailable` if it cannot be published now.
        """
        [outcome] = await self.publish_many([request])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def publish_many(self, requests: Sequence[RefreshRequest]) -> list[Outcome | TidegateError]:
        """Publish several requests; the outcome of a request that failed is its error."""
        outcomes: dict[int, Outcome | TidegateError] = {}
        # Each priority has its own topic, so one batch per priority; the outcomes keep the order of the requests.
        for priority in Priority:
            ours = [(n, request) for n, request in enumerate(requests) if request.priority is priority]
            if ours:
                asked = await self._ask(topic_for(priority), [request for _, request in ours])
                outcomes |= {n: outcome for (n, _), outcome in zip(ours, asked, strict=True)}
        return [outcomes[n] for n in range(len(requests))]

    async def _ask(self, topic: RefreshTopic, requests: Sequence[RefreshRequest]) -> Sequence[Outcome | TidegateError]:
        """Publish requests of one priority; if one of them is invalid, each on its own."""
        stream = self._transport.stream_of(topic)
        try:
            if stream is not None:
                return await self._publish_on_stream(stream, requests)
            queued = [(request.subject.id, request.priority, request.known_version) for request in requests]
            locked = await self._server.call(lambda: self._coalescer.request_many(queued), within_s=_WITHIN_S)
        except InvalidArgument as error:
            # An invalid request fails the whole script call. Sent one by one, only the invalid one fails.
            return [error] if len(requests) == 1 else [(await self._ask(topic, [request]))[0] for request in requests]
        except TidegateError as error:
            return [error] * len(requests)
        granted = [
            (request, outcome)
            for request, outcome in zip(requests, locked, strict=True)
            if isinstance(outcome, Published | Upgraded)
        ]
        # Requests that joined an earlier refresh keep their outcome: their event was published before.
        if granted and (error := await self._publish(topic, granted)):
            return [error if isinstance(outcome, Published | Upgraded) else outcome for outcome in locked]
        return locked

    async def _publish_on_stream(self, stream: Key, requests: Sequence[RefreshRequest]) -> list[Outcome]:
        """Take locks and add events in one script."""
        traced = [(request, *self._trace(request)) for request in requests]
        drafts = [
            Draft(
                request.subject.id,
                request.priority,
                request.known_version,
                (KEY_FIELD, request.subject.id, VALUE_FIELD),
                self._event(request, correlation_id).encode_without_version(),
            )
            for request, correlation_id, _ in traced
        ]
        outcomes = await self._server.call(lambda: self._coalescer.publish_many(stream, drafts), within_s=_WITHIN_S)
        for (_, _, span), outcome in zip(traced, outcomes, strict=True):
            if span is not None and isinstance(outcome, Published | Upgraded):
                events.end_request(span, outcome.version)
        return outcomes

    async def _publish(
        self, topic: RefreshTopic, granted: Sequence[tuple[RefreshRequest, Published | Upgraded]]
    ) -> TidegateError | None:
        """Publish and confirm locked requests. If publishing fails, release the locks and return the error."""
        messages = [(request.subject.id, self._encode(request, outcome.version)) for request, outcome in granted]
        try:
            await self._transport.publish(topic, messages)
        except TidegateError as error:
            metrics.PRODUCER_SEND_FAILED.inc(len(messages))
            if isinstance(error, Unavailable):
                self._outage.note(error)
            else:
                log.warning("snapshots.publish_failed", events=len(messages), error=str(error))
            # The outcome may be unknown, and the event may still arrive. It then finds a released lock, which costs at
            # most a second call.
            await asyncio.gather(*(self._release(request.subject, outcome.version) for request, outcome in granted))
            return error
        self._outage.over()
        # Only now are older events obsolete: marked earlier, a crash before the publication would leave no valid event.
        await self._confirm([(request.subject.id, outcome.version) for request, outcome in granted])
        return None

    async def _confirm(self, published: Sequence[tuple[str, int]]) -> None:
        try:
            await self._server.call(lambda: self._coalescer.confirm_many(published), within_s=_WITHIN_S)
        except Unavailable as error:  # an older event is processed too, which costs a call and changes nothing
            self._outage.note(error)
        except TidegateError as error:
            log.info("snapshots.confirm_failed", events=len(published), error=str(error))

    async def _release(self, subject: SnapshotSubject, version: int) -> None:
        try:
            await self._coalescer.release(subject.id, version)
        except Unavailable:
            return  # the lock expires within half a minute

    def _encode(self, request: RefreshRequest, version: int) -> bytes:
        correlation_id, span = self._trace(request)
        if span is not None:
            events.end_request(span, version)
        return msgspec.structs.replace(self._event(request, correlation_id), version=version).encode()

    def _trace(self, request: RefreshRequest) -> "tuple[str | None, Span | None]":
        """Return the correlation id of the event, and the span to end when the event is published."""
        if request.correlation_id is not None:
            return request.correlation_id, None
        span = events.begin_request(request.subject, request.priority, request.reason)
        return (None, None) if span is None else (span.traceparent, span)

    def _event(self, request: RefreshRequest, correlation_id: str | None) -> RefreshEvent:
        return RefreshEvent(
            event_id=new_id(),
            subject_id=request.subject.id,
            priority=request.priority,
            reason=request.reason,
            requested_at=self._clock.now(),
            # A placeholder: the coalescer assigns the version.
            version=1,
            correlation_id=correlation_id,
            upstream_id=request.upstream_id,
        )


_ASK_AGAIN_MS = 5_000.0
"""Without an announcement of the refresh, the subject is requested again after this time; its lock decides."""
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
    """True until the request fails."""


_QueuedRequest = tuple[RefreshRequest, _RecentRequest, "Span | None"]


class BackgroundRequests:
    """Requests refreshes for readers in the background, and estimates how long refreshes take."""

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
        self._outage = Outage("snapshots.publish")
        self._asked: dict[CacheKey, _RecentRequest] = {}
        self._batcher: Batcher[_QueuedRequest] = Batcher(self._ask, most=_MOST_AT_ONCE, under_way=_UNDER_WAY)
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_retry: Callable[[Collection[str]], object] = _ignore_retry
        """Called with the ids of subjects that can be requested again after a failed request."""
        self._usual_ms = _FIRST_GUESS_MS
        self._lag, self._lag_at_ms = 0, float("-inf")
        self._is_failing = False

    def request(self, request: RefreshRequest) -> bool:
        """Request a refresh, unless this process did so a moment ago; return whether it is known to be queued."""
        place, now_ms = (request.subject.kind, request.subject.key), self._now_ms()
        asked = self._asked.get(place)
        # Answered from memory: popular subjects are read often, and each read would cost a call of the server.
        if asked is not None and now_ms < asked.until_ms:
            return asked.is_queued
        if len(self._asked) >= _MOST_REMEMBERED:
            self._asked = {each: entry for each, entry in self._asked.items() if now_ms < entry.until_ms}
        # Entered before the request is sent, so that concurrent reads of the subject share it.
        asked = self._asked[place] = _RecentRequest(now_ms, now_ms + _ASK_AGAIN_MS)
        # Each request keeps the trace of its reader; the batch has none.
        span = events.begin_request(request.subject, request.priority, request.reason)
        if span is not None:
            request = msgspec.structs.replace(request, correlation_id=span.traceparent)
        self._batcher.add((request, asked, span))
        return True

    def estimate_ms(self) -> int:
        """Estimate how long a refresh that is queued now takes."""
        if self._now_ms() - self._lag_at_ms > _LAG_KNOWN_FOR_MS:
            # Set before the task runs: only one task at a time reads the lag, and this reader uses the last known one.
            self._lag_at_ms = self._now_ms()
            task = asyncio.create_task(self._read_lag())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return round(self._usual_ms + self._lag / self._per_second * 1000)

    def on_refreshed(self, moved: Collection[str] | None) -> None:
        """Note refreshed subjects, which can be requested again; None: any may have been refreshed."""
        if moved is None:
            self._asked.clear()
            return
        for subject_id in moved:
            kind, _, key = subject_id.partition("/")
            if (asked := self._asked.pop((kind, key), None)) is not None and asked.is_queued:
                # A moving average of the time between request and announcement, as readers experience it.
                self._usual_ms += _WEIGHT * (self._now_ms() - asked.at_ms - self._usual_ms)

    async def close(self) -> None:
        """Wait for requests in progress."""
        await self._batcher.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def forget_failures(self) -> None:
        """Let failed requests be repeated at once, because the server is available again."""
        self._asked = {place: asked for place, asked in self._asked.items() if asked.is_queued}

    async def _ask(self, queued: list[_QueuedRequest]) -> None:
        """Publish queued refresh requests. Those that fail are reported to `on_retry` after a pause."""
        try:
            outcomes: Sequence[Outcome | Exception] = await self._requests.publish_many(
                [request for request, _, _ in queued]
            )
        except Exception as error:
            outcomes = [error] * len(queued)
        self._log_errors([outcome for outcome in outcomes if isinstance(outcome, Exception)])
        failed: list[str] = []
        for (request, asked, span), outcome in zip(queued, outcomes, strict=True):
            if isinstance(outcome, Exception):
                # Readers see `UNKNOWN` until then, and waiting ones are woken by `on_retry` to request again.
                asked.is_queued, asked.until_ms = False, self._now_ms() + _TRY_AGAIN_MS
                failed.append(request.subject.id)
            elif span is not None and not isinstance(outcome, AlreadyProcessing):
                events.end_request(span, outcome.version)
        if failed:
            asyncio.get_running_loop().call_later(_TRY_AGAIN_MS / 1000, self.on_retry, failed)

    def _log_errors(self, errors: Sequence[Exception]) -> None:
        """Log when requests begin to fail: outages by the policy for servers, other errors in their own line."""
        if not errors:
            self._outage.over()
        elif isinstance(errors[0], Unavailable):
            self._outage.note(errors[0])
        elif not self._is_failing:
            log.info("snapshots.ask_failed", subjects=len(errors), error=str(errors[0]))
        self._is_failing = bool(errors)

    async def _read_lag(self) -> None:
        try:
            self._lag = await self._transport.lag(RefreshTopic.HIGH, GROUPS[RefreshTopic.HIGH])
        except TidegateError:
            return  # the last known lag is used


def _ignore_retry(_: Collection[str]) -> None:
    """Ignore subjects that can be requested again."""
