"""What one event goes through: its handlers, and what becomes of it then."""

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
    OUTBOX_BURIED,
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
"""How long a handler waits for a server with its event in hand; then other events have their turn."""


Bury = Callable[[Transaction, Event], object]
"""Does something in the transaction that makes an event a dead letter."""


class Undeliverable(TidegateError):
    """Raised by a handler for an event that no further try can help: it is buried at once."""


@dataclass(frozen=True)
class Retries:
    """How often an event is tried, and how long it waits after each failure."""

    backoff: Backoff
    max_attempts: int

    def __post_init__(self) -> None:
        require_positive("max_attempts", self.max_attempts)


@dataclass(frozen=True)
class Handler:
    """Does something about each event of a kind.

    It may be called again for the same event, after a failure or a crash; with `outbox.once(tx, name, event_id)` in its
    own transaction, its effect happens once.
    """

    kind: str
    name: str
    handle: Callable[[Event], Awaitable[None]]
    retries: Retries | None = None
    """Where it has needs of its own; else those of the relay. Of several that failed, the most patient decides."""
    on_burial: Callable[[Event, str], object] | None = None
    """Told of an event that becomes a dead letter because of this handler, and why; perhaps more than once."""
    bury: Bury | None = None
    """Called in the transaction that makes an event a dead letter because of this handler: what must not wait for a
    replay is done there, once."""
    on_waiting: Callable[[int], object] | None = None
    """Told how many events of this kind wait for another try, whenever that may have changed; 0 by one that ends."""

    def __post_init__(self) -> None:
        require_name("kind", self.kind)
        require_name("name", self.name)


@dataclass(frozen=True)
class Delivered:
    """All handlers succeeded."""

    row: StoredEvent


@dataclass(frozen=True)
class Postponed:
    """A handler failed; the event is tried again, not before a moment."""

    row: StoredEvent
    not_before: datetime
    error: str
    counts: bool = True
    """Whether it was an attempt: a server that is away says nothing about the event. One that serves the handler for
    other events meanwhile does (`Unserved`)."""


@dataclass(frozen=True)
class DeadLettered:
    """The event failed for good."""

    row: StoredEvent
    error: str
    event: Event | None = None
    effects: Sequence[Bury] = ()
    """What is done about the event in the same transaction."""


Outcome = Delivered | Postponed | DeadLettered


def settle(tx: Transaction, outcomes: Sequence[Outcome]) -> None:
    """Write down what became of a group of events. Doing it twice is the same as once."""
    outbox.remove(tx, [outcome.row.id for outcome in outcomes if isinstance(outcome, Delivered)])
    for outcome in sorted(outcomes, key=lambda each: each.row.id):
        row, tries = outcome.row, outcome.row.attempts + 1
        if isinstance(outcome, Postponed):
            tries = tries if outcome.counts else row.attempts
            outbox.postpone(tx, row.id, attempts=tries, not_before=outcome.not_before, error=outcome.error)
        if isinstance(outcome, DeadLettered):
            outbox.bury(tx, row.id, attempts=tries, error=outcome.error)
            if outcome.event is not None:
                for effect in outcome.effects:
                    effect(tx, outcome.event)


class EventDeliverer:
    """Takes one event to its handlers."""

    def __init__(self, handlers: Sequence[Handler], *, clock: Clock, retries: Retries, timeout: timedelta) -> None:
        require_positive("timeout", timeout.total_seconds())
        self._handlers = _by_kind(handlers)
        for kind in self._handlers:
            for counter in (OUTBOX_DELIVERED, OUTBOX_RETRIED, OUTBOX_BURIED):
                counter.labels(kind)  # told as 0 from the beginning: an alert sees the first one as an increase
        self._clock, self._retries, self._timeout = clock, retries, timeout
        # By kind too: that events of another kind succeed does not prove that the server serves this one.
        self._outages = {(handler.kind, handler.name): Outage(f"relay.{handler.name}") for handler in handlers}
        self.stopping = asyncio.Event()
        """When it is set, no handler waits for a server any more."""

    async def deliver(self, row: StoredEvent) -> Outcome:
        """Call every handler of the event; one that fails does not keep the others from being called."""
        handlers = self._handlers.get(row.kind, ())
        if not handlers:
            return self._to_dead_letters(row, "no handler for this kind of event")
        try:
            event = row.event()
        except ValueError as error:
            return self._to_dead_letters(row, f"its payload cannot be read: {error}")
        started = time.monotonic()
        failures = [failure for handler in handlers if (failure := await self._call(handler, event))]
        OUTBOX_HANDLING.labels(row.kind).observe(time.monotonic() - started)
        return self._failed(row, event, failures) if failures else self._delivered(row)

    async def _call(self, handler: Handler, event: Event) -> "_Failure | None":
        async def handle() -> None:
            async with asyncio.timeout(self._timeout.total_seconds()):
                await handler.handle(event)

        try:
            await self._outages[handler.kind, handler.name].retry(handle, stopping=self.stopping, within_s=_OUTLAST_S)
        except Unavailable as error:
            return _Failure(handler, _told(error), final=False, is_outage=True)
        except Exception as error:
            return _Failure(handler, _told(error), final=isinstance(error, Undeliverable))
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            return _Failure(handler, _told(error), final=False)
        return None

    def _delivered(self, row: StoredEvent) -> Delivered:
        OUTBOX_DELIVERED.labels(row.kind).inc()
        OUTBOX_WAIT.observe(max(0.0, (self._clock.now() - row.created_at).total_seconds()))
        log.debug("outbox.delivered", event_id=row.event_id, kind=row.kind, key=row.key, attempt=row.attempts + 1)
        return Delivered(row)

    def _failed(self, row: StoredEvent, event: Event, failures: "Sequence[_Failure]") -> Outcome:
        if all(failure.is_outage for failure in failures):
            return Postponed(row, self._clock.now() + OUTAGE_PAUSES.most, failures[0].text, counts=False)
        tries, error = row.attempts + 1, "; ".join(f"{failure.handler.name}: {failure.text}" for failure in failures)
        policies = [failure.handler.retries or self._retries for failure in failures]
        if tries >= max(each.max_attempts for each in policies) or any(failure.final for failure in failures):
            for failure in failures:
                if failure.handler.on_burial is not None:
                    failure.handler.on_burial(event, failure.text)
            return self._to_dead_letters(row, error, event, [bury for each in failures if (bury := each.handler.bury)])
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
        self, row: StoredEvent, error: str, event: Event | None = None, effects: Sequence[Bury] = ()
    ) -> DeadLettered:
        OUTBOX_BURIED.labels(row.kind).inc()
        log.error("outbox.buried", event_id=row.event_id, kind=row.kind, attempt=row.attempts + 1, error=error)
        return DeadLettered(row, error, event, effects)


@dataclass(frozen=True)
class _Failure:
    handler: Handler
    text: str
    final: bool
    is_outage: bool = False


def _told(error: BaseException) -> str:
    text = redact(error)  # never fails, unlike an error's own idea of its text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _by_kind(handlers: Sequence[Handler]) -> Mapping[str, Sequence[Handler]]:
    by_kind: dict[str, list[Handler]] = {}
    for handler in handlers:
        others = by_kind.setdefault(handler.kind, [])
        if any(other.name == handler.name for other in others):
            raise InvalidArgument("handlers", handler.name, f"has two handlers of that name for {handler.kind!r}")
        others.append(handler)
    return by_kind
