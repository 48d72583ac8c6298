"""Builds the results of claimed jobs: the new state of the job, and how its permit is settled.

Each function returns a `JobResult` for one of the possible outcomes. Failures of the call are retried with growing
pauses and count as attempts; answers such as "not now" do not count. An exception in the code of a source is treated
like a failed call, because the next answer may not cause it.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.core.errors import NoCredential, TidegateError, Unavailable
from tidegate.engine.job_store import Claim, JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import JobSpec, Reading, Verdict
from tidegate.engine.upstream import Answer, UpstreamFailed
from tidegate.primitives.gate import Admitted, Outcome, Settlement, settlement
from tidegate.storage.sql.faults import words_of

PAUSES = CollectSettings().pauses
"""Pauses after failures, unless the settings say otherwise."""
_ASK_AGAIN = timedelta(seconds=5)
_NO_SECRET = Backoff(first=_ASK_AGAIN, most=timedelta(minutes=1), jitter=0.2)
_LONGEST_PARKED = timedelta(minutes=1)
_READS = 2
"""How often a page with unreadable items is read in a run, counted in attempts of its job."""
_READ_AGAIN = timedelta(seconds=1)


def from_success(claim: Claim, admitted: Admitted, reading: Reading, answer: Answer, now: datetime) -> JobResult:
    """The upstream answered the request.

    A page with unreadable items is stored and then requested once more: most such items are transient faults. Where the
    answer itself is stored, reading it again would change nothing.
    """
    settled = settlement(admitted, allowance=reading.allowance, bucket=reading.allowance_bucket)
    finished = _done(claim, reading, settled, answer, calls=1, credential=admitted.credential)
    if not reading.skipped or claim.parked is not None or claim.attempt >= min(_READS, claim.max_attempts):
        return finished
    return msgspec.structs.replace(
        finished,
        state=JobState.READY,
        reason=f"{finished.reason}; read again",
        not_before=now + _READ_AGAIN,
        follow_ups=(),
        cursor=None,
        has_gaps=False,
        unchanged_calls=0,
        skipped=0,
    )


def from_reading(
    claim: Claim, admitted: Admitted, reading: Reading, answer: Answer, now: datetime, *, pauses: Backoff = PAUSES
) -> JobResult:
    """The upstream answered, and `reading.verdict` tells the meaning of the answer."""
    settled = _settled(admitted, Outcome.ANSWERED, reading)
    if reading.verdict is Verdict.DONE:
        return _done(claim, reading, settled, answer, calls=1, credential=admitted.credential)
    undone = _without_data(claim, settled, reading, now, pauses, calls=1)
    return msgspec.structs.replace(undone, status=answer.status)


def from_redirect(
    claim: Claim, admitted: Admitted, reading: Reading, following: JobSpec | str, now: datetime, *, pauses: Backoff
) -> JobResult:
    """The upstream redirected the call: the job waits for another permit, and is sent to the new address.

    `following` may be the reason why the redirect is not followed. Then the job is tried again at its first address,
    since a redirect may be temporary.
    """
    settled = _settled(admitted, Outcome.ANSWERED, reading)
    if isinstance(following, JobSpec):
        return _uncounted(claim, settled, reading.reason, None, calls=1, spec=following)
    return _retry(claim, settled, f"{reading.reason}: {following}", now, pauses, calls=1)


def from_unmade_call(
    claim: Claim, admitted: Admitted, reading: Reading, now: datetime, *, pauses: Backoff = PAUSES, calls: int = 0
) -> JobResult:
    """The caller did not make the call. `calls` others that it made with this permit were answered."""
    settled = _settled(admitted, Outcome.ANSWERED if calls else Outcome.UNUSED, reading)
    return _without_data(claim, settled, reading, now, pauses, calls=calls)


def from_parked(
    claim: Claim, admitted: Admitted, reading: Reading, answer: Answer, now: datetime, *, pauses: Backoff = PAUSES
) -> JobResult:
    """The answer was stored before, and no call was made. Unless it is final, the upstream is asked again."""
    unused = settlement(admitted, Outcome.UNUSED)
    caller = admitted.credential if claim.parked is None else claim.parked.credential
    if reading.verdict is Verdict.DONE:
        return _done(claim, reading, unused, answer, calls=0, credential=caller)
    if reading.verdict in (Verdict.GONE, Verdict.UNAVAILABLE):
        return _without_data(claim, unused, reading, now, pauses, calls=0, credential=caller)
    return _uncounted(claim, unused, f"the parked answer: {reading.reason}", None, credential=caller)


def from_failure(
    claim: Claim,
    admitted: Admitted,
    failure: UpstreamFailed,
    now: datetime,
    said: Reading | None = None,
    *,
    pauses: Backoff = PAUSES,
) -> JobResult:
    """No complete answer came. Unless it is certain that the request was not sent, it counts as sent.

    `said` is the reading of an interrupted answer. Only what it reports about the credential is used.
    """
    said, was_sent = said or Reading(), failure.was_sent is not False
    outcome = Outcome.UNKNOWN if was_sent else Outcome.UNUSED
    # An allowance in the headers tells what is left, so the gate need not assume that the call counted.
    settled = _settled(admitted, outcome if said.allowance is None else Outcome.ANSWERED, said, retires=False)
    status = None if failure.head is None else failure.head.status
    return _retry(claim, settled, failure.summary, now, pauses, calls=int(was_sent), status=status)


def from_defect(
    claim: Claim, admitted: Admitted, error: Exception, now: datetime, *, pauses: Backoff = PAUSES, calls: int = 0
) -> JobResult:
    """The source could not make the request, or not read the answer: retried a limited number of times.

    A stored answer is read again, and not requested again.
    """
    settled = settlement(admitted, Outcome.UNKNOWN if calls else Outcome.UNUSED)
    return _with_answer(_retry(claim, settled, _error_text(error), now, pauses, calls=calls))


def from_missing_secret(
    claim: Claim, admitted: Admitted, lack: TidegateError, now: datetime, *, pauses: Backoff = PAUSES
) -> JobResult:
    """The call was not made because its secret was not available.

    `NoCredential`: the gate retires the credential, and another one makes the call. `Unavailable`: tried again after
    growing pauses. Neither counts as an attempt. Any other error, such as a wrong key, is retried a limited number of
    times.
    """
    match lack:
        case NoCredential():
            again_at = None
        case Unavailable():
            uncounted = claim.fence - claim.attempt  # claims that did not become attempts
            again_at = now + _NO_SECRET.delay(max(0, uncounted) + 1)
        case _:
            return from_defect(claim, admitted, lack, now, pauses=pauses)
    unused = settlement(admitted, Outcome.UNUSED, retired=isinstance(lack, NoCredential))
    return _uncounted(claim, unused, str(lack), again_at)


def from_worker_deaths(claim: Claim, admitted: Admitted) -> JobResult:
    """The worker died during the last attempt of the job: it fails without another attempt."""
    reason = f"a worker died during the last of {claim.attempt - 1} attempts"
    unused = settlement(admitted, Outcome.UNUSED)
    return JobResult(
        claim=claim, state=JobState.FAILED, reason=reason, settlement=unused, credential=admitted.credential
    )


def to_parked(finished: JobResult, why: str, now: datetime) -> JobResult:
    """The documents cannot be written now: the answer is kept, and written later, after growing pauses."""
    claim, answer = finished.claim, finished.answer
    parked = claim.parked
    if parked is None and answer is not None:
        parked = ParkedAnswer(finished.settlement.credential, answer.pack(), now)
    # The pause grows with the age of the answer, from `_ASK_AGAIN` to `_LONGEST_PARKED`.
    age = timedelta() if parked is None else now - parked.parked_at
    wait = min(max(_ASK_AGAIN, age), _LONGEST_PARKED)
    return _uncounted(
        claim,
        finished.settlement,
        f"the answer is kept: {why}",
        now + wait,
        calls=finished.calls,
        credential=finished.credential,
        parked=parked,
        unchanged_calls=finished.unchanged_calls,
        **_attempt_fields(finished),
    )


def to_rejected(finished: JobResult, error: Exception, now: datetime, *, pauses: Backoff = PAUSES) -> JobResult:
    """The database rejects the documents or effects: the job is retried a limited number of times, without them."""
    retried = _retry(
        finished.claim,
        finished.settlement,
        _error_text(error),
        now,
        pauses,
        calls=finished.calls,
        credential=finished.credential,
        **_attempt_fields(finished),
    )
    return _with_answer(retried)


def without_calls(finished: JobResult) -> JobResult:
    """The same result with no calls to count: they may be counted already."""
    return msgspec.structs.replace(finished, calls=0, unchanged_calls=0)


def _attempt_fields(finished: JobResult) -> dict[str, Any]:
    """The fields of a result that stay when its end is replaced."""
    return {
        "span": finished.span,
        "status": finished.status,
        "duration_ms": finished.duration_ms,
        "call": finished.call,
    }


def _settled(admitted: Admitted, outcome: Outcome, said: Reading, *, retires: bool = True) -> Settlement:
    return settlement(
        admitted,
        outcome,
        allowance=said.allowance,
        bucket=said.allowance_bucket,
        blocked_ms=said.blocked_ms,
        is_guess=said.is_guess,
        rests_bucket=said.rests_bucket,
        pause_ms=said.pause_ms,
        retired=retires and said.verdict is Verdict.UNAUTHORIZED,
    )


def _done(
    claim: Claim, reading: Reading, settled: Settlement, answer: Answer, *, calls: int, credential: str
) -> JobResult:
    """Build the result of a job that succeeded.

    If it skipped unreadable items, its follow-up jobs are marked too, so that no item is taken for deleted.
    """
    spec, skipped = claim.job.spec, len(reading.skipped)
    documents, completed, follow_ups = reading.documents, reading.completed, reading.follow_ups
    has_gaps = skipped > 0 or spec.has_gaps
    if has_gaps:
        # A skipped item may be any of those that seem to be missing: no item is marked as gone.
        completed, follow_ups = (), [_with_gaps(each, spec) for each in follow_ups]
    return JobResult(
        claim=claim,
        state=JobState.SUCCEEDED,
        settlement=settled,
        reason=f"skipped {skipped} unreadable items; the first: {reading.skipped[0]}" if skipped else "",
        follow_ups=follow_ups,
        documents=documents,
        completed=completed,
        effects=reading.effects,
        # Kept only where a failed write would need it, because answers are large.
        answer=answer if documents or completed or reading.effects else None,
        cursor=reading.cursor,
        has_gaps=has_gaps,
        calls=calls,
        unchanged_calls=1 if reading.unchanged and calls else 0,
        skipped=skipped,
        credential=credential,
        status=answer.status,
    )


def _with_gaps(following: JobSpec, spec: JobSpec) -> JobSpec:
    """A further page of the list of `spec` inherits its gaps; any other job stays as it is."""
    is_same_list = (following.kind, following.resource) == (spec.kind, spec.resource)
    return msgspec.structs.replace(following, has_gaps=True) if is_same_list else following


def _without_data(
    claim: Claim,
    settled: Settlement,
    reading: Reading,
    now: datetime,
    pauses: Backoff,
    *,
    calls: int,
    credential: str | None = None,
) -> JobResult:
    """The result of a job if the answer does not contain the requested data."""
    reason = reading.reason
    common: dict[str, Any] = {
        "calls": calls,
        "effects": reading.effects,
        "credential": settled.credential if credential is None else credential,
    }
    common = _from_first_url(claim, common)
    match reading.verdict:
        case Verdict.RETRY:
            return _retry(claim, settled, reason, now, pauses, delay_ms=reading.delay_ms, **common)
        case Verdict.LATER | Verdict.UNAUTHORIZED:
            wait = _ASK_AGAIN if reading.delay_ms is None else timedelta(milliseconds=reading.delay_ms)
            # The gate holds back a credential that is blocked: the job itself need not wait.
            is_blocked = reading.blocked_ms is not None or (reading.pause_ms is not None and reading.delay_ms is None)
            at_once = reading.verdict is Verdict.UNAUTHORIZED or is_blocked
            return _uncounted(claim, settled, reason, None if at_once else now + wait, **common)
        case _:
            state = JobState.UNAVAILABLE if reading.verdict is Verdict.UNAVAILABLE else JobState.FAILED
            return JobResult(
                claim=claim, state=state, settlement=settled, reason=reason, cursor=reading.cursor, **common
            )


def _retry(
    claim: Claim,
    settled: Settlement,
    reason: str,
    now: datetime,
    pauses: Backoff,
    *,
    delay_ms: int | None = None,
    **fields: Any,
) -> JobResult:
    """Retry after a pause; FAILED after the last attempt."""
    fields = {"claim": claim, "settlement": settled, "reason": reason, "credential": settled.credential, **fields}
    fields = _from_first_url(claim, fields)
    if claim.attempt >= claim.max_attempts:
        return JobResult(state=JobState.FAILED, **fields)
    wait = pauses.delay(claim.attempt) if delay_ms is None else timedelta(milliseconds=delay_ms)
    return JobResult(state=JobState.READY, not_before=now + wait, **fields)


def _uncounted(claim: Claim, settled: Settlement, reason: str, again_at: datetime | None, **fields: Any) -> JobResult:
    """Execute the job again without counting an attempt."""
    fields = {"settlement": settled, "reason": reason, "credential": settled.credential, **fields}
    return JobResult(claim=claim, state=JobState.READY, not_before=again_at, is_attempt=False, **fields)


def _from_first_url(claim: Claim, fields: dict[str, Any]) -> dict[str, Any]:
    """After a call that failed, the job begins again with the URL of its source.

    The URL of a redirect may be valid for a short time only: a signed one expires during the pause.
    """
    if "spec" in fields or not fields.get("calls") or not claim.job.spec.redirects:
        return fields
    return {**fields, "spec": msgspec.structs.replace(claim.job.spec, redirects=())}


def _with_answer(ending: JobResult) -> JobResult:
    """Keep the stored answer of a job that will be retried, so that it makes no further call."""
    if ending.state is not JobState.READY or ending.claim.parked is None:
        return ending
    return msgspec.structs.replace(ending, parked=ending.claim.parked)


def _error_text(error: Exception) -> str:
    said = words_of(error)
    return f"{type(said).__name__}: {said}"
