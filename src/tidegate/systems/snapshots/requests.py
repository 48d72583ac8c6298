"""Asking for a refresh: one lock per subject decides who publishes.

On streams, lock and event are one step. On other transports there are three, and a caller that cannot publish lets go
of the lock:

    lock and version -> published -> confirmed

Older events of the subject are obsolete with the last step, and not before. A process may die between any two of them:
then an event that was queued before is done all the same.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import InvalidArgument, TidegateError, Unavailable
from tidegate.core.ids import new_id
from tidegate.core.priority import Priority
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.coalescer import Coalescer, Draft, Outcome, Published, Upgraded
from tidegate.runtime.outage import Outage
from tidegate.storage.valkey import Key
from tidegate.systems.snapshots import tracing
from tidegate.systems.snapshots.event import Reason, UpdateEvent
from tidegate.systems.snapshots.subject import Subject
from tidegate.systems.snapshots.transport import Topic, Transport, topic_for
from tidegate.systems.snapshots.transport.streams import KEY_FIELD, VALUE_FIELD
from tidegate.systems.snapshots.valkey_guard import ValkeyGuard

log = get_logger(__name__)

_WITHIN_S = 5.0
"""How long the server may take to give locks."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """That a subject be refreshed."""

    subject: Subject
    priority: Priority
    reason: Reason
    known_version: int = 0
    """The version of the subject's row, so that versions grow also where the server lost its data."""
    upstream_id: str | None = None
    correlation_id: str | None = None


class UpdateRequests:
    """The one way to an event: nothing is published without the subject's lock."""

    def __init__(
        self, coalescer: Coalescer, transport: Transport, server: ValkeyGuard, *, clock: Clock | None = None
    ) -> None:
        self._coalescer, self._transport, self._server = coalescer, transport, server
        self._clock = clock or SystemClock()
        self._outage = Outage("snapshots.publish")

    async def ask(self, wish: Wish) -> Outcome:
        """Publish the wish, unless it is published already; raises `Unavailable` where that is not possible now."""
        [outcome] = await self.ask_many([wish])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def ask_many(self, wishes: Sequence[Wish]) -> list[Outcome | TidegateError]:
        """The same for many at once; an error stands in the place of its outcome."""
        outcomes: dict[int, Outcome | TidegateError] = {}
        for priority in Priority:
            ours = [(n, wish) for n, wish in enumerate(wishes) if wish.priority is priority]
            if ours:
                asked = await self._ask(topic_for(priority), [wish for _, wish in ours])
                outcomes |= {n: outcome for (n, _), outcome in zip(ours, asked, strict=True)}
        return [outcomes[n] for n in range(len(wishes))]

    async def _ask(self, topic: Topic, wishes: Sequence[Wish]) -> Sequence[Outcome | TidegateError]:
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

    async def _publish_on_stream(self, stream: Key, wishes: Sequence[Wish]) -> list[Outcome]:
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
        self, topic: Topic, granted: Sequence[tuple[Wish, Published | Upgraded]]
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

    async def _let_go(self, subject: Subject, version: int) -> None:
        try:
            await self._coalescer.release(subject.id, version)
        except Unavailable:
            return  # it ends by itself, in half a minute

    def _published(self, wish: Wish, version: int) -> bytes:
        correlation_id, span = self._traced(wish)
        if span is not None:
            tracing.end_request(span, version)
        return msgspec.structs.replace(self._event(wish, correlation_id), version=version).encode()

    def _traced(self, wish: Wish) -> "tuple[str | None, tracing.Span | None]":
        """What the event is correlated by, and the span of its request, to be ended if it is published."""
        if wish.correlation_id is not None:
            return wish.correlation_id, None
        span = tracing.begin_request(wish.subject, wish.priority, wish.reason)
        return (None, None) if span is None else (span.traceparent, span)

    def _event(self, wish: Wish, correlation_id: str | None) -> UpdateEvent:
        return UpdateEvent(
            event_id=new_id(),
            subject_id=wish.subject.id,
            priority=wish.priority,
            reason=wish.reason,
            requested_at=self._clock.now(),
            version=1,
            correlation_id=correlation_id,
            upstream_id=wish.upstream_id,
        )
