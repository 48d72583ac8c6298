"""Delivery of one outbox event: calls its handlers and decides whether it is done, retried or a dead letter."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegate.core.arguments import require_name, require_positive
from tidegate.core.backoff import OUTAGE_PAUSES, Backoff
from tidegate.core.clock import Clock
from tidegate.core.errors import InvalidArgument, TidegateError, Unavailable
from tidegate.core.telemetry import get_logger
from tidegate.core.telemetry.metrics import (
    OUTBOX_DEAD_LETTERED,
    OUTBOX_DELIVERED,
    OUTBOX_HANDLING,
    OUTBOX_RETRIED,
    OUTBOX_WAIT,
)
from tidegate.core.telemetry.redaction import redact
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import is_being_cancelled
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event, StoredEvent

log = get_logger(__name__)

_OUTLAST_S = 30.0
"""How long an event occupies a handler that waits for a server, before other events are delivered instead."""


DeadLetterEffect = Callable[[Transaction, Event], object]
"""Called in the transaction that makes an event a dead letter."""


class Undeliverable(TidegateError):
    """Raised by a handler for an event that cannot succeed: it becomes a dead letter without another attempt."""


@dataclass(frozen=True)
class Retries:
    """Number of attempts for an event, and the pauses between them."""

    backoff: Backoff
    max_attempts: int

    def __post_init__(self) -> None:
        require_positive("max_attempts", self.max_attempts)


@dataclass(frozen=True)
class Handler:
    """A function that is called for each event of a kind.

    It may be called again for the same event, after a failure or a crash. With `outbox.once(tx, name, event_id)` in
    its own transaction, its effect is applied once.

    Example:
        async def notify(event: Event) -> None:
            await publish(event.payload["title"])

        process = build_process(context, handlers=[Handler("article.published", "newsletter", notify)])
    """

    kind: str
    name: str
    handle: Callable[[Event], Awaitable[None]]
    retries: Retries | None = None
    """Retries of this handler; default: those of the relay. If several handlers failed, the longest policy applies."""
    on_dead_letter: Callable[[Event, str], object] | None = None
    """Called with an event that becomes a dead letter because of this handler, and the reason; perhaps repeatedly."""
    dead_letter_effect: DeadLetterEffect | None = None
    """Called in the transaction that makes an event a dead letter because of this handler. For effects that must not
    wait for a replay; applied once."""
    on_waiting: Callable[[int], object] | None = None
    """Called with the number of events of this kind that wait for another attempt, when it may have changed. A relay
    that stops calls it with 0."""

    def __post_init__(self) -> None:
        require_name("kind", self.kind)
        require_name("name", self.name)


@dataclass(frozen=True)
class Delivered:
    """All handlers of the event succeeded."""

    row: StoredEvent


@dataclass(frozen=True)
class Postponed:
    """A handler failed; the event is delivered again, not before a given time."""

    row: StoredEvent
    not_before: datetime
    error: str
    counts: bool = True
    """Whether the failure counts as an attempt. An unavailable server says nothing about the event, unless it serves
    the same handler for other events meanwhile (`StepKeepsFailing`)."""


@dataclass(frozen=True)
class DeadLettered:
    """The event failed permanently."""

    row: StoredEvent
    error: str
    event: Event | None = None
    effects: Sequence[DeadLetterEffect] = ()
    """Effects of the failed handlers, applied in the same transaction."""


Outcome = Delivered | Postponed | DeadLettered


def settle(tx: Transaction, outcomes: Sequence[Outcome]) -> None:
    """Store the outcomes of a group of events. Idempotent."""
    # Most outcomes are deliveries, which need one statement for all.
    outbox.remove(tx, [outcome.row.id for outcome in outcomes if isinstance(outcome, Delivered)])
    # In the order of the ids, so that two relays that overlap cannot deadlock.
    for outcome in sorted(outcomes, key=lambda each: each.row.id):
        row = outcome.row
        if isinstance(outcome, Postponed):
            due, counts = outcome.not_before, outcome.counts
            outbox.postpone(tx, row.id, seen=row.attempts, not_before=due, error=outcome.error, counts=counts)
        if isinstance(outcome, DeadLettered):
            outbox.mark_dead(tx, row.id, attempts=row.attempts + 1, error=outcome.error)
            if outcome.event is not None:
                for effect in outcome.effects:
                    effect(tx, outcome.event)


class EventDeliverer:
    """Calls the handlers of an event and returns its outcome."""

    def __init__(self, handlers: Sequence[Handler], *, clock: Clock, retries: Retries, timeout: timedelta) -> None:
        require_positive("timeout", timeout.total_seconds())
        self._handlers = _by_kind(handlers)
        for kind in self._handlers:
            for counter in (OUTBOX_DELIVERED, OUTBOX_RETRIED, OUTBOX_DEAD_LETTERED):
                counter.labels(kind)  # exported as 0 from the beginning, so that `increase()` sees the first event
        self._clock, self._retries, self._timeout = clock, retries, timeout
        # Per kind as well: success with events of another kind does not prove that the server serves this kind.
        self._outages = {(handler.kind, handler.name): Outage(f"relay.{handler.name}") for handler in handlers}
        self.stopping = asyncio.Event()
        """When set, handlers stop waiting for unavailable servers."""

    async def deliver(self, row: StoredEvent) -> Outcome:
        """Call every handler of the event. The failure of one handler does not prevent the calls of the others."""
        handlers = self._handlers.get(row.kind, ())
        if not handlers:
            return self._to_dead_letters(row, "no handler for this kind of event")
        try:
            # A payload that cannot be decoded fails here, for this event alone.
            event = row.event()
        except ValueError as error:
            return self._to_dead_letters(row, f"its payload cannot be read: {error}")
        started = time.monotonic()
        failures = [failure for handler in handlers if (failure := await self._call(handler, event))]
        OUTBOX_HANDLING.labels(row.kind).observe(time.monotonic() - started)
        return self._failed(row, event, failures) if failures else self._delivered(row)

    async def _call(self, handler: Handler, event: Event) -> "_Failure | None":
        """Call one handler, during outages repeatedly; returns the failure, or None if it succeeded."""

        async def handle() -> None:
            # The limit is for one call; the repetitions during an outage have one of their own.
            async with asyncio.timeout(self._timeout.total_seconds()):
                await handler.handle(event)

        try:
            await self._outages[handler.kind, handler.name].retry(handle, stopping=self.stopping, within_s=_OUTLAST_S)
        except Unavailable as error:
            return _Failure(handler, _describe(error), final=False, is_outage=True)
        except Exception as error:
            return _Failure(handler, _describe(error), final=isinstance(error, Undeliverable))
        except asyncio.CancelledError as error:
            # Otherwise something inside the handler was cancelled, which is a failure of the handler.
            if is_being_cancelled():
                raise
            return _Failure(handler, _describe(error), final=False)
        return None

    def _delivered(self, row: StoredEvent) -> Delivered:
        OUTBOX_DELIVERED.labels(row.kind).inc()
        OUTBOX_WAIT.observe(max(0.0, (self._clock.now() - row.created_at).total_seconds()))
        log.debug("outbox.delivered", event_id=row.event_id, kind=row.kind, key=row.key, attempt=row.attempts + 1)
        return Delivered(row)

    def _failed(self, row: StoredEvent, event: Event, failures: "Sequence[_Failure]") -> Outcome:
        """Postpone an event after failures of its handlers, or move it to the dead letters.

        It is postponed without counting an attempt if all failures are outages. Otherwise it is retried, or becomes a
        dead letter once its attempts are used up or a failure is final.
        """
        if all(failure.is_outage for failure in failures):
            return Postponed(row, self._clock.now() + OUTAGE_PAUSES.most, failures[0].text, counts=False)
        tries, error = row.attempts + 1, "; ".join(f"{failure.handler.name}: {failure.text}" for failure in failures)
        policies = [failure.handler.retries or self._retries for failure in failures]
        # The handlers are called again together, so the most patient policy decides.
        if tries >= max(each.max_attempts for each in policies) or any(failure.final for failure in failures):
            for failure in failures:
                if failure.handler.on_dead_letter is not None:
                    failure.handler.on_dead_letter(event, failure.text)
            effects = [effect for each in failures if (effect := each.handler.dead_letter_effect)]
            return self._to_dead_letters(row, error, event, effects)
        delay = max(each.backoff.delay(tries) for each in policies)
        OUTBOX_RETRIED.labels(row.kind).inc()
        log.warning(
            "outbox.retry_planned",
            event_id=row.event_id,
            kind=row.kind,
            attempt=tries,
            delay_s=delay.total_seconds(),
            error=error,
        )
        return Postponed(row, self._clock.now() + delay, error)

    def _to_dead_letters(
        self, row: StoredEvent, error: str, event: Event | None = None, effects: Sequence[DeadLetterEffect] = ()
    ) -> DeadLettered:
        OUTBOX_DEAD_LETTERED.labels(row.kind).inc()
        log.error("outbox.dead_lettered", event_id=row.event_id, kind=row.kind, attempt=row.attempts + 1, error=error)
        return DeadLettered(row, error, event, effects)


@dataclass(frozen=True)
class _Failure:
    handler: Handler
    text: str
    final: bool
    is_outage: bool = False


def _describe(error: BaseException) -> str:
    text = redact(error)  # never raises, unlike `str` of some errors
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _by_kind(handlers: Sequence[Handler]) -> Mapping[str, Sequence[Handler]]:
    by_kind: dict[str, list[Handler]] = {}
    for handler in handlers:
        others = by_kind.setdefault(handler.kind, [])
        if any(other.name == handler.name for other in others):
            raise InvalidArgument("handlers", handler.name, f"has two handlers of that name for {handler.kind!r}")
        others.append(handler)
    return by_kind
