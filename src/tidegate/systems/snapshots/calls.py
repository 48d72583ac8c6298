"""From an event to what its call brought: permit, call, reading, and the pauses between tries.

What a call's end means for its event.

| what came                                  | what becomes of the event                                     |
| ------------------------------------------ | ------------------------------------------------------------- |
| 200, 404                                   | the kind reads it: found, or missing                          |
| a redirect                                 | asked at the new address, with another permit                 |
| 429                                        | everybody waits as long as the upstream says; then once more  |
| any other 4xx                              | a dead letter, at once                                        |
| 5xx, no answer, an answer that breaks off  | tried again a few times, with growing pauses; then dead       |
| an answer that cannot be read              | a dead letter, at once                                        |
| an answer for another subject              | a dead letter, at once                                        |
"""

import asyncio
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from tidegate.core.backoff import OUTAGE_PAUSES, Backoff
from tidegate.core.batching import Batcher
from tidegate.core.clock import from_ms, monotonic_ms
from tidegate.core.errors import GrantVoid, InvalidArgument, TooManyWaiting, Unavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.upstream import Answer, Head, Permit, Request, UpstreamFailed
from tidegate.engine.upstream.redirects import MOST_REDIRECTS, is_redirect, redirected, target_of
from tidegate.engine.upstream.tracing import called
from tidegate.primitives.coalescer import Coalescer
from tidegate.primitives.limiter import Grant, Limiter
from tidegate.runtime.outage import Outage
from tidegate.systems.snapshots.events import FailedRefresh, FailureReason, RefreshEvent, as_json
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

_REST = timedelta(seconds=1)
"""Where the upstream says "too many" and not for how long."""
_LONGEST_REST = timedelta(hours=24)
_LONGEST_SUBJECT = 640
"""More than any subject's name has, so that what is cut is nobody's."""
_LONGEST_MESSAGE = 2000
_LONGEST_TRACE = 8000
_MARGIN = 4
_LONGEST_IDENTITY = 80


class PermanentFailure(msgspec.Struct, frozen=True, kw_only=True):
    """It will not be tried again by itself."""

    reason: FailureReason
    message: str
    trace: str | None = None


class TemporaryFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream failed, and may not do so next time."""

    message: str


class Throttled(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream wants no calls for so long; this one does not count."""

    span: timedelta


class Redirected(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream redirects the call."""

    target: str


AnswerOutcome = FoundSubject | MissingSubject | PermanentFailure | TemporaryFailure | Throttled | Redirected


def judge(kind: SnapshotKind, key: str, upstream_id: str | None, answer: Answer) -> AnswerOutcome:
    """What an answer means that was asked for with this key, and this id of the upstream where one is known."""
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
        return Throttled(span=_rest_of(answer))
    message = f"the upstream answered {answer.status}"
    if 400 <= answer.status < 500:
        return PermanentFailure(reason=FailureReason.UPSTREAM_4XX, message=message)
    if answer.status >= 500:
        return TemporaryFailure(message=message)
    return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=f"{message}, which nobody expects")


def judge_failure(error: UpstreamFailed) -> AnswerOutcome:
    """What it means that there was no whole answer."""
    if isinstance(error, Unavailable):
        return TemporaryFailure(message=error.summary)
    return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=error.summary)


def dead_update(
    *, event: bytes, subject_id: str, dead: PermanentFailure, retries: int, failed_at: datetime, worker: str
) -> FailedRefresh:
    """The dead letter; secrets that an upstream's words may hold are taken out of it.

    All of it is bounded: a letter that no transport takes would come back for ever.
    """
    return FailedRefresh(
        event=msgspec.Raw(as_json(event)),
        subject_id=subject_id[:_LONGEST_SUBJECT],
        reason=dead.reason,
        # A look for secrets in megabytes would take long, so that most of what is cut is cut before it.
        message=fit_to_keep(dead.message[: _MARGIN * _LONGEST_MESSAGE], most=_LONGEST_MESSAGE),
        trace=None if dead.trace is None else _last_of(dead.trace),
        retries=retries,
        failed_at=failed_at,
        worker=worker,
    )


def _read_answer(
    kind: SnapshotKind, key: str, upstream_id: str | None, answer: Answer
) -> FoundSubject | MissingSubject | PermanentFailure:
    try:
        verdict = kind.read(key, answer)
    except UnreadableAnswer as error:
        return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=str(error), trace=trace_of(error))
    except Exception as error:  # a defect of the kind: no other worker would fare better
        message = f"the kind could not read the answer: {type(error).__name__}: {error}"
        return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=message, trace=trace_of(error))
    if isinstance(verdict, FoundSubject) and (not verdict.identity or verdict.identity not in (key, upstream_id)):
        identity = str(verdict.identity)[:_LONGEST_IDENTITY]
        message = f"the subject {key!r} was asked for, and the answer is for {identity!r}"
        return PermanentFailure(reason=FailureReason.WRONG_SUBJECT, message=message)
    return verdict


def trace_of(error: BaseException) -> str:
    """Where it was raised."""
    return "".join(traceback.format_exception(error))


def _last_of(trace: str) -> str:
    return fit_to_keep(trace[-_MARGIN * _LONGEST_TRACE :], most=sys.maxsize)[-_LONGEST_TRACE:]


def unfit(error: InvalidArgument) -> PermanentFailure:
    """The subject cannot be asked for at all."""
    return PermanentFailure(reason=FailureReason.PARSE_ERROR, message=str(error))


def _rest_of(head: Head) -> timedelta:
    """How long the upstream wants to be left alone."""
    given = head.headers.get("Retry-After", "").strip()
    if given.isascii() and given.isdigit():
        return min(max(timedelta(seconds=int(given[:9])), _REST), _LONGEST_REST)
    return _REST


log = get_logger(__name__)

_LONG_WAIT_MS = 2000.0
"""Who waited so long for a permit looks again whether the event is still wanted. Not sooner: the permit may end while
we look, and where more is wanted than may be, everybody waits a while (after 0.25 s, one permit in five was lost)."""
_DOUBTS_AT_ONCE = 500
_SERVER_AWAY = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=10))


class UpstreamCaller(Protocol):
    """Whoever makes calls: `UpstreamClient`."""

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        """Send one request; `permit` is used right before it leaves, and `GrantVoid` raised where it has ended."""
        ...


class ObsoleteEvent(msgspec.Struct, frozen=True):
    """A newer event of the subject was published; this one is nobody's wish any more."""


class FailedCall(msgspec.Struct, frozen=True):
    """It is to become a dead letter, after so many tries more than one."""

    dead: PermanentFailure
    retries: int
    version: int
    """Of the last call, or of the event where none was made."""


CallOutcome = Refreshed | FailedCall | ObsoleteEvent
Troubled = Callable[[SnapshotSubject, int, str, int], None]
"""Told of a subject, the version of the failed call, what went wrong, and how often: it is being tried again."""


class RefreshCalls:
    """Makes the calls of one priority's events."""

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
        self._kinds, self._caller, self._limiter, self._doubts = kinds, caller, limiter, ObsoleteChecks(coalescer)
        self._tries, self._pauses, self._most_redirects = tries, pauses, most_redirects
        self._outage = Outage("snapshots.permits")

    async def refresh(self, event: RefreshEvent, *, wait: "CancellableWait", troubled: Troubled) -> CallOutcome:
        """Call until there is something to write, or there is no hope; however long permits take."""
        try:
            subject = event.subject
            kind = self._kinds.get(subject.kind)
            if kind is None:
                message = f"this installation keeps no snapshots of the kind {subject.kind!r}"
                return FailedCall(
                    PermanentFailure(reason=FailureReason.UNKNOWN_SCHEMA, message=message), 0, event.version
                )
            request = kind.request(subject.key, event.upstream_id)
        except InvalidArgument as error:
            return FailedCall(unfit(error), 0, event.version)
        return await self._refresh(event, kind, request, wait=wait, troubled=troubled)

    async def _refresh(
        self, event: RefreshEvent, kind: SnapshotKind, asked: Request, *, wait: "CancellableWait", troubled: Troubled
    ) -> CallOutcome:
        subject, request = event.subject, asked
        failures, redirects = 0, list[str]()
        while True:
            async with wait:
                grant = await self._permit(event)
            if grant is None:
                return ObsoleteEvent()
            version = version_of_result(event.version, grant.granted_at_ms)
            try:
                verdict = await self._call(event, kind, request, grant)
            except GrantVoid:
                continue  # opening the connection took longer than a permit lasts; it stays open for the next permit
            match verdict:
                case FoundSubject() | MissingSubject():
                    try:
                        return _refreshed(subject, version, grant.granted_at_ms, verdict)
                    except InvalidArgument as error:  # nothing that we could keep
                        return FailedCall(unfit(error), failures, version)
                case Throttled():
                    await self._pause(verdict.span, wait)
                case Redirected():
                    redirects.append(verdict.target)
                    if len(redirects) > self._most_redirects:
                        message = f"the upstream redirected more than {self._most_redirects} times"
                        return FailedCall(
                            PermanentFailure(reason=FailureReason.PARSE_ERROR, message=message), failures, version
                        )
                    request = redirected(asked, redirects)
                case PermanentFailure():
                    return FailedCall(verdict, failures, version)
                case TemporaryFailure():
                    failures += 1
                    if failures >= self._tries:
                        dead = PermanentFailure(reason=FailureReason.UPSTREAM_5XX, message=verdict.message)
                        return FailedCall(dead, failures - 1, version)
                    metrics.UPDATE_PROCESS_ERROR.labels(FailureReason.UPSTREAM_5XX).inc()
                    troubled(subject, version, verdict.message, failures)
                    async with wait:
                        await asyncio.sleep(self._pauses.delay(failures).total_seconds())

    async def _call(self, event: RefreshEvent, kind: SnapshotKind, request: Request, grant: Grant) -> AnswerOutcome:
        try:
            answer = await called(self._caller.fetch)(request, grant)
        except UpstreamFailed as error:
            return judge_failure(error)
        return judge(kind, event.subject.key, event.upstream_id, answer)

    async def _permit(self, event: RefreshEvent) -> Grant | None:
        """Wait for a permit, to be used when the request leaves; None if a newer event came while we waited.

        Without the server there are no permits, and so no calls: we wait until it is back.
        """
        away = 0
        while True:
            began_ms = monotonic_ms()
            try:
                grant = await self._limiter.acquire(priority=event.priority)
                self._outage.over()
                waited_long = monotonic_ms() - began_ms > _LONG_WAIT_MS or away > 0
                if waited_long and await self._doubts.is_obsolete(event):
                    return None
                if grant.is_alive:
                    return grant
            except GrantVoid:
                continue  # permits end before we come to use them; the next one is ours in a moment
            except Unavailable as error:
                away += 1
                await self._outage.pause(error, away)
            except TooManyWaiting as error:
                away += 1
                log.warning("snapshots.no_permits", tries=away, error=str(error))
                await asyncio.sleep(OUTAGE_PAUSES.delay(away).total_seconds())

    async def _pause(self, span: timedelta, wait: "CancellableWait") -> None:
        """Have everybody leave the upstream alone; where the others cannot be told, we do."""
        metrics.UPDATE_PROCESS_ERROR.labels("UPSTREAM_429").inc()
        try:
            await self._limiter.pause(span)
        except Unavailable:
            async with wait:
                await asyncio.sleep(span.total_seconds())


def _refreshed(
    subject: SnapshotSubject, version: int, sent_at_ms: int, verdict: FoundSubject | MissingSubject
) -> Refreshed:
    checked_at = from_ms(sent_at_ms)
    if isinstance(verdict, MissingSubject):
        return Refreshed(subject=subject, version=version, checked_at=checked_at, body=None)
    body, name = on_one_line(verdict.body), verdict.upstream_id
    if name is not None and (len(name) > LONGEST_UPSTREAM_ID or not name.isprintable()):
        # The database would refuse it, after the call, and so each time.
        raise InvalidArgument("upstream_id", name[:32], f"must be up to {LONGEST_UPSTREAM_ID} printable characters")
    return Refreshed.of(subject, version, checked_at=checked_at, body=body, upstream_id=name)


PendingCheck = tuple[RefreshEvent, "asyncio.Future[bool]"]


class ObsoleteChecks:
    """Whether events are obsolete. Permits come to many events at once, so concurrent callers share one request."""

    def __init__(self, coalescer: Coalescer) -> None:
        self._coalescer = coalescer
        self._batcher: Batcher[PendingCheck] = Batcher(self._ask, most=_DOUBTS_AT_ONCE, under_way=2)

    async def is_obsolete(self, event: RefreshEvent) -> bool:
        """Whether a newer event of its subject was published; raises `Unavailable` where nobody can say."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._batcher.add((event, answer))
        return await answer

    async def _ask(self, asked: list[PendingCheck]) -> None:
        try:
            found = await self._coalescer.are_obsolete([(event.subject_id, event.version) for event, _ in asked])
        except Exception as error:
            found = [error] * len(asked)
        for (_, answer), each in zip(asked, found, strict=True):
            if answer.done():
                continue  # its event was given back meanwhile
            if isinstance(each, Exception):
                answer.set_exception(each)
            else:
                answer.set_result(each)


class CancellableWait:
    """`async with` around waits that an orderly stop may break off: nothing has been sent, or its answer was no use."""

    def __init__(self, tasks: "set[asyncio.Task[None]]", stopping: asyncio.Event) -> None:
        self._tasks, self._stopping = tasks, stopping

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._stopping.is_set():
            raise asyncio.CancelledError
        self._tasks.add(task)

    async def __aexit__(self, *_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)
