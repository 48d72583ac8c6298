"""From an event to what its call brought: permit, call, reading, and the pauses between tries."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

import msgspec

from tidegate.core.backoff import OUTAGE_PAUSES, Backoff
from tidegate.core.batching import Batcher
from tidegate.core.clock import from_ms, monotonic_ms
from tidegate.core.errors import GrantVoid, InvalidArgument, TooManyWaiting, Unavailable
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.upstream import Answer, Permit, Request, UpstreamFailed
from tidegate.engine.upstream.redirects import MOST_REDIRECTS, redirected
from tidegate.engine.upstream.tracing import called
from tidegate.primitives.coalescer import Coalescer
from tidegate.primitives.limiter import Grant, Limiter
from tidegate.runtime.outage import Outage
from tidegate.systems.snapshots.bodies import on_one_line
from tidegate.systems.snapshots.event import DeathReason, UpdateEvent
from tidegate.systems.snapshots.failures import Again, Dead, Moved, Rest, Verdict, judge, judge_failure, unfit
from tidegate.systems.snapshots.precedence import version_of_result
from tidegate.systems.snapshots.store import Refreshed
from tidegate.systems.snapshots.subject import LONGEST_UPSTREAM_ID, Found, Missing, SnapshotKind, Subject

log = get_logger(__name__)

_LONG_WAIT_MS = 2000.0
"""Who waited so long for a permit looks again whether the event is still wanted. Not sooner: the permit may end while
we look, and where more is wanted than may be, everybody waits a while (after 0.25 s, one permit in five was lost)."""
_DOUBTS_AT_ONCE = 500
_SERVER_AWAY = Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=10))


class Caller(Protocol):
    """Whoever makes calls: `UpstreamClient`."""

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        """Send one request; `permit` is used right before it leaves, and `GrantVoid` raised where it has ended."""
        ...


class Obsolete(msgspec.Struct, frozen=True):
    """A newer event of the subject was published; this one is nobody's wish any more."""


class Failed(msgspec.Struct, frozen=True):
    """It is to become a dead letter, after so many tries more than one."""

    dead: Dead
    retries: int
    version: int
    """Of the last call, or of the event where none was made."""


CallOutcome = Refreshed | Failed | Obsolete
Troubled = Callable[[Subject, int, str, int], None]
"""Told of a subject, the version of the failed call, what went wrong, and how often: it is being tried again."""


class Calls:
    """Makes the calls of one priority's events."""

    def __init__(
        self,
        kinds: Mapping[str, SnapshotKind],
        *,
        caller: Caller,
        limiter: Limiter,
        coalescer: Coalescer,
        tries: int,
        pauses: Backoff,
        most_redirects: int = MOST_REDIRECTS,
    ) -> None:
        self._kinds, self._caller, self._limiter, self._doubts = kinds, caller, limiter, Doubts(coalescer)
        self._tries, self._pauses, self._most_redirects = tries, pauses, most_redirects
        self._outage = Outage("snapshots.permits")

    async def refresh(self, event: UpdateEvent, *, wait: "Waiting", troubled: Troubled) -> CallOutcome:
        """Call until there is something to write, or there is no hope; however long permits take."""
        try:
            subject = event.subject
            kind = self._kinds.get(subject.kind)
            if kind is None:
                message = f"this installation keeps no snapshots of the kind {subject.kind!r}"
                return Failed(Dead(reason=DeathReason.UNKNOWN_SCHEMA, message=message), 0, event.version)
            request = kind.request(subject.key, event.upstream_id)
        except InvalidArgument as error:
            return Failed(unfit(error), 0, event.version)
        return await self._refresh(event, kind, request, wait=wait, troubled=troubled)

    async def _refresh(
        self, event: UpdateEvent, kind: SnapshotKind, asked: Request, *, wait: "Waiting", troubled: Troubled
    ) -> CallOutcome:
        subject, request = event.subject, asked
        failures, redirects = 0, list[str]()
        while True:
            async with wait:
                grant = await self._permit(event)
            if grant is None:
                return Obsolete()
            version = version_of_result(event.version, grant.granted_at_ms)
            try:
                verdict = await self._call(event, kind, request, grant)
            except GrantVoid:
                continue  # opening the connection took longer than a permit lasts; it stays open for the next permit
            match verdict:
                case Found() | Missing():
                    try:
                        return _refreshed(subject, version, grant.granted_at_ms, verdict)
                    except InvalidArgument as error:  # nothing that we could keep
                        return Failed(unfit(error), failures, version)
                case Rest():
                    await self._pause(verdict.span, wait)
                case Moved():
                    redirects.append(verdict.target)
                    if len(redirects) > self._most_redirects:
                        message = f"the upstream redirected more than {self._most_redirects} times"
                        return Failed(Dead(reason=DeathReason.PARSE_ERROR, message=message), failures, version)
                    request = redirected(asked, redirects)
                case Dead():
                    return Failed(verdict, failures, version)
                case Again():
                    failures += 1
                    if failures >= self._tries:
                        dead = Dead(reason=DeathReason.UPSTREAM_5XX, message=verdict.message)
                        return Failed(dead, failures - 1, version)
                    metrics.UPDATE_PROCESS_ERROR.labels(DeathReason.UPSTREAM_5XX).inc()
                    troubled(subject, version, verdict.message, failures)
                    async with wait:
                        await asyncio.sleep(self._pauses.delay(failures).total_seconds())

    async def _call(self, event: UpdateEvent, kind: SnapshotKind, request: Request, grant: Grant) -> Verdict:
        try:
            answer = await called(self._caller.fetch)(request, grant)
        except UpstreamFailed as error:
            return judge_failure(error)
        return judge(kind, event.subject.key, event.upstream_id, answer)

    async def _permit(self, event: UpdateEvent) -> Grant | None:
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

    async def _pause(self, span: timedelta, wait: "Waiting") -> None:
        """Have everybody leave the upstream alone; where the others cannot be told, we do."""
        metrics.UPDATE_PROCESS_ERROR.labels("UPSTREAM_429").inc()
        try:
            await self._limiter.pause(span)
        except Unavailable:
            async with wait:
                await asyncio.sleep(span.total_seconds())


def _refreshed(subject: Subject, version: int, sent_at_ms: int, verdict: Found | Missing) -> Refreshed:
    checked_at = from_ms(sent_at_ms)
    if isinstance(verdict, Missing):
        return Refreshed(subject=subject, version=version, checked_at=checked_at, body=None)
    body, name = on_one_line(verdict.body), verdict.upstream_id
    if name is not None and (len(name) > LONGEST_UPSTREAM_ID or not name.isprintable()):
        # The database would refuse it, after the call, and so each time.
        raise InvalidArgument("upstream_id", name[:32], f"must be up to {LONGEST_UPSTREAM_ID} printable characters")
    return Refreshed.of(subject, version, checked_at=checked_at, body=body, upstream_id=name)


Doubt = tuple[UpdateEvent, "asyncio.Future[bool]"]


class Doubts:
    """Whether events are obsolete. Permits come to many events at once, so concurrent callers share one request."""

    def __init__(self, coalescer: Coalescer) -> None:
        self._coalescer = coalescer
        self._batcher: Batcher[Doubt] = Batcher(self._ask, most=_DOUBTS_AT_ONCE, under_way=2)

    async def is_obsolete(self, event: UpdateEvent) -> bool:
        """Whether a newer event of its subject was published; raises `Unavailable` where nobody can say."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._batcher.add((event, answer))
        return await answer

    async def _ask(self, asked: list[Doubt]) -> None:
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


class Waiting:
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
