"""Refreshes one subject: waits for a permit, calls the upstream, and decides by the answer what happens to the event.

| answer                                     | what happens to the event                                          |
| ------------------------------------------ | ------------------------------------------------------------------ |
| 200, 404                                   | the kind reads it: found or missing                                |
| redirect                                   | requested at the new address, with another permit                  |
| 429                                        | all callers pause as long as the upstream says, then it is retried |
| other 4xx                                  | dead letter at once                                                |
| 5xx, no answer, incomplete answer          | retried with growing pauses, then a dead letter                    |
| unreadable answer                          | dead letter at once                                                |
| answer for another subject                 | dead letter at once                                                |
"""

import asyncio
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

import msgspec

from tidegate.core.backoff import OUTAGE_PAUSES, Backoff
from tidegate.core.batching import Batcher
from tidegate.core.clock import from_ms, monotonic_ms
from tidegate.core.errors import GrantVoid, InvalidArgument, TooManyWaiting, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.upstream import Answer, Head, Permit, Request, UpstreamFailed
from tidegate.engine.upstream.call_records import called
from tidegate.engine.upstream.redirects import MOST_REDIRECTS, is_redirect, redirected, target_of
from tidegate.primitives.coalescer import Coalescer
from tidegate.primitives.limiter import Grant, Limiter
from tidegate.runtime.outage import Outage
from tidegate.systems.snapshots import metrics
from tidegate.systems.snapshots.events import FailureReason, RefreshEvent
from tidegate.systems.snapshots.model import (
    LONGEST_UPSTREAM_ID,
    FoundSubject,
    MissingSubject,
    SnapshotKind,
    SnapshotSubject,
    UnreadableAnswer,
    on_one_line,
)
from tidegate.systems.snapshots.store import Refreshed
from tidegate.systems.snapshots.versions import version_of_result

_DEFAULT_PAUSE = timedelta(seconds=1)
"""Pause after a 429 without `Retry-After`."""
_LONGEST_PAUSE = timedelta(hours=24)
_LONGEST_IDENTITY = 80


class PermanentFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The refresh failed and is not retried."""

    reason: FailureReason
    message: str
    trace: str | None = None


class TemporaryFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream failed; the request is retried."""

    message: str


class Throttled(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream requires a pause; this attempt is not counted."""

    span: timedelta


class Redirected(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream redirects the request."""

    target: str


AnswerOutcome = FoundSubject | MissingSubject | PermanentFailure | TemporaryFailure | Throttled | Redirected


def classify(kind: SnapshotKind, key: str, upstream_id: str | None, answer: Answer) -> AnswerOutcome:
    """Classify the answer to a request for `key`, made with `upstream_id` if that is known."""
    if answer.status in (200, 404):
        return _read_answer(kind, key, upstream_id, answer)
    if is_redirect(answer):
        try:
            return Redirected(target=target_of(answer))
        except InvalidArgument as error:
            return PermanentFailure(
                reason=FailureReason.PARSE_ERROR, message=f"the upstream answered {answer.status}: {error}"
            )
    if answer.status == 429:
        return Throttled(span=_pause_after(answer))
    message = f"the upstream answered {answer.status}"
    if 400 <= answer.status < 500:
        return PermanentFailure(reason=FailureReason.UPSTREAM_4XX, message=message)
    if answer.status >= 500:
        return TemporaryFailure(message=message)
    return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=f"{message}, which is not supported")


def classify_failure(error: UpstreamFailed) -> AnswerOutcome:
    """Classify a request without a complete answer."""
    if isinstance(error, Unavailable):
        return TemporaryFailure(message=error.summary)
    return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=error.summary)


def _read_answer(
    kind: SnapshotKind, key: str, upstream_id: str | None, answer: Answer
) -> FoundSubject | MissingSubject | PermanentFailure:
    try:
        outcome = kind.read(key, answer)
    except UnreadableAnswer as error:
        return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=str(error), trace=traceback_of(error))
    except Exception as error:  # a defect of the kind; other workers would fail too
        message = f"the kind could not read the answer: {type(error).__name__}: {error}"
        return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=message, trace=traceback_of(error))
    # An upstream or proxy may answer for another subject. Stored under this key, that answer
    # would be shown to its readers.
    if isinstance(outcome, FoundSubject) and (not outcome.identity or outcome.identity not in (key, upstream_id)):
        identity = str(outcome.identity)[:_LONGEST_IDENTITY]
        message = f"the subject {key!r} was requested, but the answer is for {identity!r}"
        return PermanentFailure(reason=FailureReason.WRONG_SUBJECT, message=message)
    return outcome


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error."""
    return "".join(traceback.format_exception(error))


def invalid(error: InvalidArgument) -> PermanentFailure:
    """Classify a subject or result that is invalid."""
    return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=str(error))


def _pause_after(head: Head) -> timedelta:
    """Return the pause that the upstream requires."""
    # At least the default pause, since `Retry-After: 0` would repeat the call at once; and with an upper bound, so that
    # a wrong value cannot stop all refreshes for weeks.
    return max(head.retry_after(longest=_LONGEST_PAUSE) or _DEFAULT_PAUSE, _DEFAULT_PAUSE)


log = get_logger(__name__)

_LONG_WAIT_MS = 2000.0
"""After a longer wait for a permit, it is checked again whether the event is obsolete. Checking sooner costs permits:
they expire during the check, and under load all events wait (with 0.25 s, one permit in five was lost)."""
_CHECKS_AT_ONCE = 500


class UpstreamCaller(Protocol):
    """Sends requests; implemented by `UpstreamClient`."""

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        """Send one request. The permit is used right before; raises `GrantVoid` if it has expired."""
        ...


class ObsoleteEvent(msgspec.Struct, frozen=True):
    """A newer event of the subject was published."""


class FailedCall(msgspec.Struct, frozen=True):
    """The event becomes a dead letter after `retries` retries."""

    failure: PermanentFailure
    retries: int
    version: int
    """Version of the last request, or of the event if none was sent."""


CallOutcome = Refreshed | FailedCall | ObsoleteEvent
OnRetry = Callable[[SnapshotSubject, int, str, int], None]
"""Called before a retry with the subject, the version of the failed request, the error and the number of attempts."""


class RefreshCalls:
    """Refreshes the subjects of one priority's events."""

    def __init__(
        self,
        kinds: Mapping[str, SnapshotKind],
        *,
        caller: UpstreamCaller,
        limiter: Limiter,
        coalescer: Coalescer,
        tries: int,
        pauses: Backoff,
        most_redirects: int = MOST_REDIRECTS,
    ) -> None:
        self._kinds, self._caller, self._limiter, self._obsolete_checks = (
            kinds,
            caller,
            limiter,
            ObsoleteChecks(coalescer),
        )
        self._tries, self._pauses, self._most_redirects = tries, pauses, most_redirects
        self._outage = Outage("snapshots.permits")

    async def refresh(self, event: RefreshEvent, *, wait: "CancellableWait", on_retry: OnRetry) -> CallOutcome:
        """Send requests until there is a result or a permanent failure; waits for permits as long as necessary."""
        try:
            subject = event.subject
            kind = self._kinds.get(subject.kind)
            if kind is None:
                message = f"no kind {subject.kind!r} is configured"
                return FailedCall(
                    PermanentFailure(reason=FailureReason.UNKNOWN_SCHEMA, message=message), 0, event.version
                )
            request = kind.request(subject.key, event.upstream_id)
        except InvalidArgument as error:
            return FailedCall(invalid(error), 0, event.version)
        return await self._refresh(event, kind, request, wait=wait, on_retry=on_retry)

    async def _refresh(
        self, event: RefreshEvent, kind: SnapshotKind, asked: Request, *, wait: "CancellableWait", on_retry: OnRetry
    ) -> CallOutcome:
        """Call the upstream, each time with a new permit, until the result is final.

        Retries temporary failures, follows redirects and waits when it is throttled. A failed call raises nothing, but
        is returned as `FailedCall`.
        """
        subject, request = event.subject, asked
        failures, redirects = 0, list[str]()
        while True:
            async with wait:
                # Waiting for a permit may be cancelled at shutdown: no request was sent, and the
                # event is delivered again.
                grant = await self._permit(event)
            if grant is None:
                return ObsoleteEvent()
            # Each request gets its own version from the time of its permit. A retry is therefore
            # newer than the attempt before.
            version = version_of_result(event.version, grant.granted_at_ms)
            try:
                outcome = await self._call(event, kind, request, grant)
            except GrantVoid:
                continue  # connecting took longer than a permit lasts; the connection stays open for the next permit
            match outcome:
                case FoundSubject() | MissingSubject():
                    try:
                        return _refreshed(subject, version, grant.granted_at_ms, outcome)
                    except InvalidArgument as error:  # the result cannot be stored
                        return FailedCall(invalid(error), failures, version)
                # A pause that the upstream demands is not a failure of the event, so it costs no attempt.
                case Throttled():
                    await self._pause(outcome.span, wait)
                case Redirected():
                    redirects.append(outcome.target)
                    if len(redirects) > self._most_redirects:
                        message = f"the upstream redirected more than {self._most_redirects} times"
                        return FailedCall(
                            PermanentFailure(reason=FailureReason.PARSE_ERROR, message=message), failures, version
                        )
                    # Built from the original request: whether secret headers are sent depends on
                    # every server in the chain.
                    request = redirected(asked, redirects)
                case PermanentFailure():
                    return FailedCall(outcome, failures, version)
                case TemporaryFailure():
                    failures += 1
                    if failures >= self._tries:
                        failure = PermanentFailure(reason=FailureReason.UPSTREAM_5XX, message=outcome.message)
                        return FailedCall(failure, failures - 1, version)
                    metrics.UPDATE_PROCESS_ERROR.labels(FailureReason.UPSTREAM_5XX).inc()
                    # Record the failed attempt now: readers and `snapshots get` see why the refresh takes long.
                    on_retry(subject, version, outcome.message, failures)
                    async with wait:
                        await asyncio.sleep(self._pauses.delay(failures).total_seconds())

    async def _call(self, event: RefreshEvent, kind: SnapshotKind, request: Request, grant: Grant) -> AnswerOutcome:
        try:
            answer = await called(self._caller.fetch)(request, grant)
        except UpstreamFailed as error:
            return classify_failure(error)
        return classify(kind, event.subject.key, event.upstream_id, answer)

    async def _permit(self, event: RefreshEvent) -> Grant | None:
        """Wait for a permit; None if a newer event was published meanwhile.

        Without the Valkey server there are no permits: waits until it is available again.
        """
        failures_of_server = 0
        while True:
            began_ms = monotonic_ms()
            try:
                grant = await self._limiter.acquire(priority=event.priority)
                self._outage.over()
                waited_long = monotonic_ms() - began_ms > _LONG_WAIT_MS or failures_of_server > 0
                # A newer event may have been published during a long wait. Its worker makes the call;
                # this one would be wasted.
                if waited_long and await self._obsolete_checks.is_obsolete(event):
                    return None
                # The check may have taken longer than the permit lasts. Then another one is taken.
                if grant.is_alive:
                    return grant
            except GrantVoid:
                continue  # the permit expired before this task ran; take another one
            except Unavailable as error:
                failures_of_server += 1
                await self._outage.pause(error, failures_of_server)
            except TooManyWaiting as error:
                failures_of_server += 1
                log.warning("snapshots.no_permits", tries=failures_of_server, error=str(error))
                await asyncio.sleep(OUTAGE_PAUSES.delay(failures_of_server).total_seconds())

    async def _pause(self, span: timedelta, wait: "CancellableWait") -> None:
        """Pause all callers of the upstream; if they cannot be told, pause this one."""
        metrics.UPDATE_PROCESS_ERROR.labels("UPSTREAM_429").inc()
        try:
            # The pause is kept on the server, so that it holds for all processes that share the limit.
            await self._limiter.pause(span)
        except Unavailable:
            async with wait:
                await asyncio.sleep(span.total_seconds())


def _refreshed(
    subject: SnapshotSubject, version: int, sent_at_ms: int, outcome: FoundSubject | MissingSubject
) -> Refreshed:
    checked_at = from_ms(sent_at_ms)
    if isinstance(outcome, MissingSubject):
        return Refreshed(subject=subject, version=version, checked_at=checked_at, body=None)
    body, name = on_one_line(outcome.body), outcome.upstream_id
    if name is not None and (len(name) > LONGEST_UPSTREAM_ID or not name.isprintable()):
        # The database would reject it after every request.
        raise InvalidArgument("upstream_id", name[:32], f"must be up to {LONGEST_UPSTREAM_ID} printable characters")
    return Refreshed.of(subject, version, checked_at=checked_at, body=body, upstream_id=name)


PendingCheck = tuple[RefreshEvent, "asyncio.Future[bool]"]


class ObsoleteChecks:
    """Checks whether events are obsolete; concurrent checks share one request to the server."""

    def __init__(self, coalescer: Coalescer) -> None:
        self._coalescer = coalescer
        self._batcher: Batcher[PendingCheck] = Batcher(self._ask, most=_CHECKS_AT_ONCE, under_way=2)

    async def is_obsolete(self, event: RefreshEvent) -> bool:
        """Return whether a newer event of its subject was published; raises `Unavailable`."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._batcher.add((event, answer))
        return await answer

    async def _ask(self, asked: list[PendingCheck]) -> None:
        try:
            found = await self._coalescer.are_obsolete([(event.subject_id, event.version) for event, _ in asked])
        except Exception as error:
            # An error concerns all callers of the batch; each gets it from its own future.
            found = [error] * len(asked)
        for (_, answer), each in zip(asked, found, strict=True):
            if answer.done():
                continue  # its task was cancelled
            if isinstance(each, Exception):
                answer.set_exception(each)
            else:
                answer.set_result(each)


class CancellableWait:
    """Context manager around waits that a graceful shutdown may cancel: no request is in progress."""

    def __init__(self, tasks: "set[asyncio.Task[None]]", stopping: asyncio.Event) -> None:
        self._tasks, self._stopping = tasks, stopping

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        # The shutdown cancels the tasks that are registered at that moment. A task that begins
        # to wait later ends itself.
        if self._stopping.is_set():
            raise asyncio.CancelledError
        self._tasks.add(task)

    async def __aexit__(self, *_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)
