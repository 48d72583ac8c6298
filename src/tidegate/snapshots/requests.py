"""Asking for a refresh: one lock per subject decides who publishes, and whoever cannot publish lets go of the lock.

    lock and version -> published -> confirmed

Older events of the subject are obsolete with the last step, and not before. A process may die between any two of them:
then an event that was queued before is done all the same.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from tidegate.flow.breaker import Breaker
from tidegate.flow.coalescer import Coalescer, Outcome, Published, Upgraded
from tidegate.kernel.clock import Clock, SystemClock
from tidegate.kernel.errors import InvalidArgument, TidegateError, Unavailable
from tidegate.kernel.ids import new_id
from tidegate.kernel.priority import Priority
from tidegate.snapshots import tracing
from tidegate.snapshots.event import Reason, UpdateEvent
from tidegate.snapshots.subject import Subject
from tidegate.snapshots.transport import Transport, topic_for
from tidegate.telemetry import metrics
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)


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
    """The one way to an event: nobody publishes without the subject's lock."""

    def __init__(
        self, coalescer: Coalescer, transport: Transport, breaker: Breaker, *, clock: Clock | None = None
    ) -> None:
        """`breaker` is that of the Valkey server."""
        self._coalescer, self._transport, self._breaker = coalescer, transport, breaker
        self._clock = clock or SystemClock()

    async def ask(self, wish: Wish) -> Outcome:
        """Publish the wish, unless somebody has; raises `Unavailable` where that is not possible now."""
        [outcome] = await self.ask_many([wish])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def ask_many(self, wishes: Sequence[Wish]) -> list[Outcome | TidegateError]:
        """The same for many at once; an error stands in the place of its outcome."""
        outcomes = await self._lock(wishes)
        for priority in Priority:
            ours = [
                (n, wish, outcome)
                for n, (wish, outcome) in enumerate(zip(wishes, outcomes, strict=True))
                if wish.priority is priority and isinstance(outcome, Published | Upgraded)
            ]
            if ours and (error := await self._publish(priority, [(wish, outcome) for _, wish, outcome in ours])):
                for n, _, _ in ours:
                    outcomes[n] = error
        return outcomes

    async def _lock(self, wishes: Sequence[Wish]) -> list[Outcome | TidegateError]:
        """The locks of all, in one round trip; where one of them cannot be, each by itself."""
        wanted = [(wish.subject.id, wish.priority, wish.known_version) for wish in wishes]
        try:
            with self._breaker.attempt():
                return [*await self._coalescer.request_many(wanted)]
        except InvalidArgument as error:
            return [error] if len(wishes) == 1 else [(await self._lock([wish]))[0] for wish in wishes]
        except TidegateError as error:
            return [error] * len(wishes)

    async def _publish(
        self, priority: Priority, granted: Sequence[tuple[Wish, Published | Upgraded]]
    ) -> TidegateError | None:
        """Publish what we have the locks for, and confirm it; if that fails, let go of them, and tell why."""
        messages = [(wish.subject.id, self._event(wish, outcome.version).encode()) for wish, outcome in granted]
        try:
            await self._transport.publish(topic_for(priority), messages)
        except TidegateError as error:
            metrics.PRODUCER_SEND_FAILED.inc(len(messages))
            log.warning("snapshots.publish_failed", events=len(messages), error=str(error))
            await asyncio.gather(*(self._let_go(wish.subject, outcome.version) for wish, outcome in granted))
            return error
        await self._confirm([(wish.subject.id, outcome.version) for wish, outcome in granted])
        return None

    async def _confirm(self, published: Sequence[tuple[str, int]]) -> None:
        try:
            with self._breaker.attempt():
                await self._coalescer.confirm_many(published)
        except TidegateError as error:  # what was queued before is done too, which costs a call and changes nothing
            log.info("snapshots.confirm_failed", events=len(published), error=str(error))

    async def _let_go(self, subject: Subject, version: int) -> None:
        try:
            await self._coalescer.release(subject.id, version)
        except Unavailable:
            return  # it ends by itself, in half a minute

    def _event(self, wish: Wish, version: int) -> UpdateEvent:
        return UpdateEvent(
            event_id=new_id(),
            subject_id=wish.subject.id,
            priority=wish.priority,
            reason=wish.reason,
            requested_at=self._clock.now(),
            version=version,
            correlation_id=wish.correlation_id or tracing.requested(wish.subject, wish.priority, wish.reason, version),
            upstream_id=wish.upstream_id,
        )
