"""Executes one job: the source makes the request, the caller sends it, the source reads the answer.

Every error becomes a `JobResult`; none is raised to the worker.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from traceback import format_exception
from typing import Protocol, runtime_checkable

import msgspec

from tidegate.core.arguments import require_not_negative
from tidegate.core.clock import Clock, milliseconds
from tidegate.core.errors import GrantVoid, InvalidArgument, TidegateError, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import redact_known
from tidegate.engine.credentials.vault import KeyFileMissing, RedirectCipher
from tidegate.engine.job_results import (
    from_defect,
    from_failure,
    from_missing_secret,
    from_parked,
    from_reading,
    from_redirect,
    from_success,
    from_unmade_call,
    from_worker_deaths,
)
from tidegate.engine.job_store import Claim, JobResult
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import JobSpec, Reading, Source, Task, Verdict
from tidegate.engine.upstream import AddressRefused, Answer, Head, Permit, Request, UpstreamFailed
from tidegate.engine.upstream.call_records import CallRecorder, Fetch, called
from tidegate.engine.upstream.redirects import MOST_REDIRECTS, may_follow, redirected, target_of
from tidegate.primitives.gate import Admitted, Clearances, GatePermit, PermitWithdrawn

log = get_logger(__name__)

_WHOLE, _NOT_MODIFIED = 200, 304
_CONDITIONS = frozenset({"if-none-match", "if-modified-since"})
_MOST_TRIES = 5
_GATE_AWAY = timedelta(seconds=5)
"""Pause before a request is tried again that the gate could not confirm."""


class UpstreamCalls(Protocol):
    """Sends requests to an upstream."""

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        """Send one request and return its answer. `permit` is used right before the request leaves.

        Raises `UpstreamFailed`, or `NotCalled` if it does not make the call.
        """
        ...


class NotCalled(TidegateError):
    """Raised by a caller that does not make the call. `reading` is the result for the job, as of an answer.

    `calls` is the number of other calls that it made with this permit. If it is 0, the permit is returned unused.
    """

    def __init__(
        self,
        verdict: Verdict,
        reason: str,
        *,
        delay_ms: int | None = None,
        pause_ms: int | None = None,
        blocked_ms: int | None = None,
        is_guess: bool = False,
        rests_bucket: bool = False,
        calls: int = 0,
    ) -> None:
        if verdict is Verdict.DONE:
            raise InvalidArgument("verdict", verdict, "a call that was not made has no result")
        require_not_negative("calls", calls)
        super().__init__(reason)
        self.verdict, self.reason, self.calls = verdict, reason, calls
        self.delay_ms, self.pause_ms = delay_ms, pause_ms
        self.reading = Reading(
            verdict=verdict,
            reason=reason,
            delay_ms=delay_ms,
            pause_ms=pause_ms,
            blocked_ms=blocked_ms,
            is_guess=is_guess,
            rests_bucket=rests_bucket,
        )


class Secrets(Protocol):
    """Provides the secrets of credentials."""

    async def secret_of(self, credential: str, /) -> str:
        """Return the secret of a credential.

        Raises `NoCredential` if no valid secret is left, `Unavailable` if it cannot be read now.
        """
        ...


@runtime_checkable
class ReplaceableSecrets(Secrets, Protocol):
    """Secrets of credentials that can have a replacement for a rejected secret."""

    async def rejected(self, credential: str, secret: str, reason: str, /) -> bool:
        """Stop using `secret`, which the upstream rejected. Returns whether the credential has another one."""
        ...


@dataclass(frozen=True)
class CallRoute:
    """How the calls of a source are made."""

    caller: UpstreamCalls
    secrets: Secrets
    keeps_answers: bool = False
    """Whether every 200 is stored before it is read, for sources with readers that may fail or crash the process: they
    get the stored answer again, and no call is repeated."""


Keep = Callable[[Claim, ParkedAnswer], Awaitable[bool]]
"""Stores an answer with its job; see `Committer.keep`."""
Send = Callable[[Request], Awaitable[Answer]]
"""Sends a request with the permit of its job."""


class Calls:
    """Executes claimed jobs. `routes` has the routes of sources that do not use `default_route`."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        default_route: CallRoute,
        clock: Clock,
        *,
        routes: Mapping[str, CallRoute] | None = None,
        settings: CollectSettings | None = None,
        most_redirects: int = MOST_REDIRECTS,
        redirects: RedirectCipher | None = None,
        keep: Keep | None = None,
        clearances: Clearances | None = None,
    ) -> None:
        """Without `clearances`, for tests, requests are sent without a confirmation of the gate."""
        self._keep = keep
        self._sources, self._default_route, self._routes, self._clock = sources, default_route, routes or {}, clock
        self._pauses, self._most_redirects = (settings or CollectSettings()).pauses, most_redirects
        self._redirects, self._clearances = redirects or RedirectCipher(), clearances

    async def clear(self, admitted: Sequence[Admitted]) -> None:
        """Confirm the permits of a batch with the gate, right before its requests are sent."""
        if self._clearances is not None:
            with suppress(Unavailable):  # each job asks again, and handles the error
                await self._clearances.clear(admitted)

    async def make(self, claim: Claim, admitted: Admitted) -> JobResult:
        """Execute one job and return its result."""
        permit = None if self._clearances is None else self._clearances.permit(admitted)
        is_taken_over = admitted.deliveries > 1
        # First, because a job that kills its workers must end, also if it does so while it reads a stored answer.
        if is_taken_over and claim.attempt > claim.max_attempts:
            return from_worker_deaths(claim, admitted)
        # A stored answer needs no call, so it does not matter whether the permit is spent.
        if claim.parked is not None:
            return self._read_again(claim, admitted)
        # A dead worker may have used the permit. See docs/decisions/0022.
        if is_taken_over:
            return self._return_to_gate(claim, admitted)
        route = self._routes.get(claim.source, self._default_route)
        try:
            secret = await route.secrets.secret_of(admitted.credential)
        except TidegateError as lack:
            return from_missing_secret(claim, admitted, lack, self._clock.now(), pauses=self._pauses)
        # Inside of `_send`: it records the requests, and not the confirmations of the gate.
        recorder = CallRecorder(called(route.caller.fetch), self._clock, secret)
        finished = await self._call(claim, admitted, route, secret, partial(_send, recorder.fetch, permit))
        reason = redact_known(finished.reason, secret)  # an error may quote the URL, and an answer the request
        finished = msgspec.structs.replace(finished, call=recorder.call, reason=reason)
        said = finished.settlement
        if self._clearances is None or (said.blocked_ms is None and said.pause_ms is None):
            return finished
        # Reported now, before the settlement: until then other processes keep using this credential.
        report = await self._clearances.report(said)
        if report is None:
            return finished
        # Otherwise the settlement would record the same block a second time.
        said = msgspec.structs.replace(said, is_reported=True)
        return msgspec.structs.replace(finished, settlement=said, learned=report.learned)

    def _return_to_gate(self, claim: Claim, admitted: Admitted) -> JobResult:
        """Return a job of a dead worker to the gate. The permit may be spent, so the call needs another one.

        The deliveries of a new message start at 1, so deaths are counted as attempts.
        """
        said = Reading(verdict=Verdict.LATER, reason="its worker died and may have sent the request", delay_ms=0)
        return from_unmade_call(claim, admitted, said, self._clock.now(), pauses=self._pauses)

    async def _call(self, claim: Claim, admitted: Admitted, route: CallRoute, secret: str, send: Send) -> JobResult:
        """Make the call of a claimed job; convert its answer, refusal, failure or defect to a `JobResult`."""
        task, calls = _task(claim, admitted.credential), 0
        try:
            source = self._sources[claim.source]
            request = source.request(task, secret)
            targets = await self._redirects.decrypt(task.spec.redirects)
            if targets:
                request = redirected(request, targets)
            # Counted before it is sent: after an error from here on, the call may have been made.
            calls = 1
            answer = await send(request)
            # Stored before it is read: a reader that kills this process then gets the same answer again.
            claim = await self._kept(claim, admitted, route, answer)
            reading = source.read(task, answer)
            # Nothing is known that could be unchanged: a broken cache answered, and the data would be missing.
            if answer.status == _NOT_MODIFIED and not _CONDITIONS & {name.lower() for name in request.headers}:
                why = "304 to a request without a condition"
                reading = Reading(verdict=Verdict.RETRY, reason=why, allowance=reading.allowance)
            if reading.verdict is Verdict.DONE:
                return from_success(claim, admitted, reading, answer, self._clock.now())
            if reading.verdict is Verdict.MOVED:
                following = await self._following(task.spec, targets, request, answer)
                return from_redirect(claim, admitted, reading, following, self._clock.now(), pauses=self._pauses)
            reading = await _report_refusal(reading, route.secrets, admitted.credential, secret)
            return from_reading(claim, admitted, reading, answer, self._clock.now(), pauses=self._pauses)
        except NotCalled as omitted:
            said = omitted.reading
            return from_unmade_call(claim, admitted, said, self._clock.now(), pauses=self._pauses, calls=omitted.calls)
        except PermitWithdrawn as withdrawn:
            back = Reading(verdict=Verdict.LATER, reason=str(withdrawn), delay_ms=0)
            return from_unmade_call(claim, admitted, back, self._clock.now(), pauses=self._pauses)
        except AddressRefused as failure:
            # Nothing was sent: the permit is returned unused.
            said = Reading(verdict=Verdict.GONE, reason=failure.reason)
            return from_unmade_call(claim, admitted, said, self._clock.now(), pauses=self._pauses)
        except UpstreamFailed as failure:
            said = self._said(claim.source, task, failure)
            return from_failure(claim, admitted, failure, self._clock.now(), said, pauses=self._pauses)
        except Exception as error:
            # An error in the code of a source fails this job and not the lane.
            return self._defect(claim, admitted, error, calls, secret)

    async def _following(
        self, spec: JobSpec, targets: Sequence[str], request: Request, answer: Answer
    ) -> JobSpec | str:
        """Return the request that a redirect leads to, or the reason why it is not followed.

        `targets` are the URLs to which earlier redirects of this job led.
        """
        try:
            target = target_of(answer)
        except InvalidArgument as error:
            return str(error)
        if not may_follow(request, answer, target):
            return f"a redirect of {request.method} is not followed"
        if len(targets) >= self._most_redirects:
            return f"redirected more than {self._most_redirects} times"
        try:
            return msgspec.structs.replace(spec, redirects=await self._redirects.encrypt((*targets, target)))
        except KeyFileMissing as error:
            return str(error)

    async def _kept(self, claim: Claim, admitted: Admitted, route: CallRoute, answer: Answer) -> Claim:
        """Store the answer and return the claim with it; unchanged if the route does not keep answers."""
        if self._keep is None or not route.keeps_answers or answer.status != _WHOLE:
            return claim
        parked = ParkedAnswer(admitted.credential, answer.pack(), self._clock.now())
        return msgspec.structs.replace(claim, parked=parked) if await self._keep(claim, parked) else claim

    def _said(self, source: str, task: Task, failure: UpstreamFailed) -> Reading | None:
        """Read an interrupted answer as one with an empty body; None where that is not possible."""
        if failure.head is None:
            return None
        try:
            return self._sources[source].read(task, _without_body(failure.head))
        except Exception:  # many readers need a body; the failure is reported in any case
            return None

    def _read_again(self, claim: Claim, admitted: Admitted) -> JobResult:
        """Read the stored answer, as the credential that got it."""
        assert claim.parked is not None
        try:
            answer = Answer.unpack(claim.parked.answer)
            reading = self._sources[claim.source].read(_task(claim, claim.parked.credential), answer)
            return from_parked(claim, admitted, reading, answer, self._clock.now(), pauses=self._pauses)
        except Exception as error:
            return self._defect(claim, admitted, error, 0)

    def _defect(self, claim: Claim, admitted: Admitted, error: Exception, calls: int, secret: str = "") -> JobResult:
        kind, job = claim.job.spec.kind, claim.job.id
        # An error may quote the secret, and the log may not know the shape of it.
        text = redact_known("".join(format_exception(error)).rstrip(), secret)
        log.error("collect.source_failed", source=claim.source, kind=kind, job=job, exception=text)
        return from_defect(claim, admitted, error, self._clock.now(), pauses=self._pauses, calls=calls)


async def _report_refusal(reading: Reading, secrets: Secrets, credential: str, secret: str) -> Reading:
    """Report a rejected secret and return the reading to use.

    If the credential has another secret, the call is repeated and no attempt is counted. Otherwise the credential is
    retired, and another one of its pool makes the call.
    """
    if reading.verdict is not Verdict.UNAUTHORIZED or not isinstance(secrets, ReplaceableSecrets):
        return reading
    if not await secrets.rejected(credential, secret, reading.reason):
        return reading
    return msgspec.structs.replace(reading, verdict=Verdict.LATER, delay_ms=0)


async def _send(fetch: Fetch, permit: GatePermit | None, request: Request) -> Answer:
    """Send the request with a confirmed permit. Raises `PermitWithdrawn` if the gate withdrew it.

    The confirmation may expire while a connection is opened. The connection is kept, so the next try uses it.
    """
    if permit is None:
        return await fetch(request, None)
    for _ in range(_MOST_TRIES):
        try:
            await permit.confirm()
        except Unavailable as away:
            wait_ms = milliseconds(_GATE_AWAY)
            raise NotCalled(Verdict.LATER, f"not sent: {away}", delay_ms=wait_ms) from None
        try:
            return await fetch(request, permit)
        # Before `GrantVoid`, its base class: a withdrawn permit is not confirmed again.
        except PermitWithdrawn:
            raise
        except GrantVoid:
            continue
    raise PermitWithdrawn(f"not sent: its confirmation expired {_MOST_TRIES} times")


def _without_body(head: Head) -> Answer:
    return Answer(
        status=head.status,
        headers=head.headers,
        url=head.url,
        received_at=head.received_at,
        body=b"",
        elapsed_ms=0.0,
    )


def _task(claim: Claim, credential: str) -> Task:
    return Task(
        spec=claim.job.spec,
        run_id=claim.job.run_id,
        user_id=claim.user_id,
        credential=credential,
        pool=claim.job.pool,
        attempt=claim.attempt,
        cursor=claim.cursor,
    )
