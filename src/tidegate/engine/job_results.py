"""What an answer, or the lack of one, means for its job and for its permit."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from tidegate.core.backoff import Backoff
from tidegate.engine.job_store import Claim, Ending
from tidegate.engine.lifecycle import JobState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import JobSpec, Reading, Verdict
from tidegate.engine.upstream import Answer, UpstreamFailed
from tidegate.primitives.gate import Admitted, Learned, Outcome, Settlement, settlement
from tidegate.storage.documents import Document, Listing
from tidegate.storage.sql.faults import words_of

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span

PAUSES = CollectSettings().pauses
"""After a failure, where the settings say nothing else."""
_ASK_AGAIN = timedelta(seconds=5)
_LONGEST_PARKED = timedelta(minutes=1)
_READS = 2
"""How often a page with unreadable items is read in a run, counted in attempts of its job."""
_READ_AGAIN = timedelta(seconds=1)


class JobResult(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A claimed job that was worked on: what to write, and how its permit ends."""

    ending: Ending
    settlement: Settlement
    documents: Sequence[Document] = ()
    completed: Sequence[Listing] = ()
    answer: Answer | None = None
    """Whatever the documents and effects were read from, in case the documents cannot be written."""
    has_writer: bool = True
    """False where the source's own writer has failed: the job has to end without it."""
    learned: Learned | None = None
    """What its credential learned from a refusal, to be remembered."""
    span: "Span | None" = None
    """Where it is traced: the job's, to be ended when this is written."""
    status: int | None = None
    """The status of the answer; None where there was none."""
    duration_ms: float | None = None
    """How long the job took, where the log tells it (`job_log.py`)."""

    @property
    def source(self) -> str:
        """The source of its run, under whose name the documents are stored."""
        return self.ending.claim.source

    @property
    def needs_store(self) -> bool:
        """Whether the document store has to be asked."""
        return bool(self.documents or self.completed)

    @property
    def weight(self) -> int:
        """How much work it is to write, next to a result that leads to nothing."""
        return 1 + len(self.ending.follow_ups) // 4 + len(self.ending.effects) // 4

    @property
    def size(self) -> int:
        """In bytes, about: what is held of it until it is written."""
        return 0 if self.answer is None else len(self.answer.body)


def from_success(claim: Claim, admitted: Admitted, reading: Reading, answer: Answer, now: datetime) -> JobResult:
    """The upstream answered what was asked.

    A page with unreadable items is stored and then asked for once more: most such items are faults of a moment. Where
    the answer itself is stored, reading it again would change nothing.
    """
    settled = settlement(admitted, allowance=reading.allowance, bucket=reading.allowance_bucket)
    finished = _done(claim, reading, settled, answer, calls=1, credential=admitted.credential)
    if not reading.skipped or claim.parked is not None or claim.attempt >= min(_READS, claim.max_attempts):
        return finished
    again = Ending(
        claim=claim,
        state=JobState.READY,
        reason=f"{finished.ending.reason}; read again",
        not_before=now + _READ_AGAIN,
        calls=1,
        documents=finished.ending.documents,
        effects=finished.ending.effects,
        credential=finished.ending.credential,
    )
    return msgspec.structs.replace(finished, ending=again)


def from_reading(
    claim: Claim, admitted: Admitted, reading: Reading, answer: Answer, now: datetime, *, pauses: Backoff = PAUSES
) -> JobResult:
    """The upstream answered something else."""
    settled = _settled(admitted, Outcome.ANSWERED, reading)
    if reading.verdict is Verdict.DONE:
        return _done(claim, reading, settled, answer, calls=1, credential=admitted.credential)
    ending = _undone(claim, admitted.credential, reading, now, pauses, calls=1)
    return JobResult(ending=ending, settlement=settled, status=answer.status)


def from_redirect(
    claim: Claim, admitted: Admitted, reading: Reading, following: JobSpec | str, now: datetime, *, pauses: Backoff
) -> JobResult:
    """The upstream redirected the call: the job waits for another permit, and asks at the new address.

    `following` may be the reason why it does not. Then it is tried again from the address where it began: where it was
    sent may be a place for today only.
    """
    settled = _settled(admitted, Outcome.ANSWERED, reading)
    if isinstance(following, JobSpec):
        ending = _uncounted(claim, admitted.credential, reading.reason, None, calls=1)
    else:
        ending = _retry(claim, admitted.credential, f"{reading.reason}: {following}", now, pauses, calls=1)
        following = msgspec.structs.replace(claim.job.spec, redirects=())
    return JobResult(ending=msgspec.structs.replace(ending, spec=following), settlement=settled)


def from_omission(
    claim: Claim, admitted: Admitted, reading: Reading, now: datetime, *, pauses: Backoff = PAUSES, calls: int = 0
) -> JobResult:
    """The caller would not make the call. Others that it made instead, with this permit, were answered."""
    settled = _settled(admitted, Outcome.ANSWERED if calls else Outcome.UNUSED, reading)
    ending = _undone(claim, admitted.credential, reading, now, pauses, calls=calls)
    return JobResult(ending=ending, settlement=settled)


def from_parked(
    claim: Claim, admitted: Admitted, reading: Reading, answer: Answer, now: datetime, *, pauses: Backoff = PAUSES
) -> JobResult:
    """The answer was there already, and no call was made. One that may be better next time is asked for again."""
    unused = settlement(admitted, Outcome.UNUSED)
    caller = admitted.credential if claim.parked is None else claim.parked.credential
    if reading.verdict is Verdict.DONE:
        return _done(claim, reading, unused, answer, calls=0, credential=caller)
    if reading.verdict in (Verdict.GONE, Verdict.UNAVAILABLE):
        return JobResult(ending=_undone(claim, caller, reading, now, pauses, calls=0), settlement=unused)
    ending = _uncounted(claim, caller, f"the parked answer: {reading.reason}", None)
    return JobResult(ending=ending, settlement=unused)


def to_parked(finished: JobResult, why: str, now: datetime) -> JobResult:
    """The documents cannot be written now: keep the answer, and try again soon, later and later."""
    claim, answer = finished.ending.claim, finished.answer
    parked = claim.parked
    if parked is None and answer is not None:
        parked = ParkedAnswer(finished.settlement.credential, answer.pack(), now)
    age = timedelta() if parked is None else now - parked.parked_at
    wait = min(max(_ASK_AGAIN, age), _LONGEST_PARKED)
    caller = finished.ending.credential
    ending = _uncounted(claim, caller, f"the answer is kept: {why}", now + wait, calls=finished.ending.calls)
    ending = msgspec.structs.replace(ending, parked=parked, unchanged_calls=finished.ending.unchanged_calls)
    return _instead_of(finished, ending)


def from_failure(
    claim: Claim,
    admitted: Admitted,
    failure: UpstreamFailed,
    now: datetime,
    said: Reading | None = None,
    *,
    pauses: Backoff = PAUSES,
) -> JobResult:
    """No whole answer came. Unless it is certain that the call was not made, it counts as made.

    `said` is what its beginning said, if there was one: only what it tells of the credential counts.
    """
    said, outcome = said or Reading(), Outcome.UNUSED if failure.was_sent is False else Outcome.UNKNOWN
    settled = _settled(admitted, outcome if said.allowance is None else Outcome.ANSWERED, said, retires=False)
    calls = 0 if failure.was_sent is False else 1
    ending = _retry(claim, admitted.credential, failure.summary, now, pauses, calls=calls)
    return JobResult(ending=ending, settlement=settled, status=None if failure.head is None else failure.head.status)


def from_defect(
    claim: Claim, admitted: Admitted, error: Exception, now: datetime, *, pauses: Backoff = PAUSES, calls: int = 0
) -> JobResult:
    """The source could not make the request, or not read the answer: unknown is transient, and bounded.

    An answer that is stored is read again, and not asked for again.
    """
    settled = settlement(admitted, Outcome.UNKNOWN if calls else Outcome.UNUSED)
    ending = _retry(claim, admitted.credential, _named(error), now, pauses, calls=calls)
    return JobResult(ending=_with_answer(ending), settlement=settled)


def to_refused(finished: JobResult, error: Exception, now: datetime, *, pauses: Backoff = PAUSES) -> JobResult:
    """What it brought cannot be written, and not because somebody is away: tried again, a limited number of times."""
    ended = finished.ending
    ending = _retry(ended.claim, ended.credential, _named(error), now, pauses, calls=ended.calls)
    return _instead_of(finished, _with_answer(ending))


def _instead_of(finished: JobResult, ending: Ending) -> JobResult:
    """Another end of the same try, without what it brought."""
    return JobResult(
        ending=ending,
        settlement=finished.settlement,
        span=finished.span,
        status=finished.status,
        duration_ms=finished.duration_ms,
    )


def without_calls(finished: JobResult) -> JobResult:
    """Its calls may be counted already."""
    ending = msgspec.structs.replace(finished.ending, calls=0, unchanged_calls=0)
    return msgspec.structs.replace(finished, ending=ending)


def from_poison(claim: Claim, admitted: Admitted) -> JobResult:
    """It was tried as often as it may be, and the last worker that had it died; the next one does not try."""
    reason = f"a worker died with this job at its last try, of {claim.attempt - 1}"
    return JobResult(
        ending=Ending(claim=claim, state=JobState.FAILED, reason=reason, credential=admitted.credential),
        settlement=settlement(admitted, Outcome.UNUSED),
    )


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
    spec, skipped = claim.job.spec, len(reading.skipped)
    documents, completed, follow_ups = reading.documents, reading.completed, reading.follow_ups
    has_gaps = skipped > 0 or spec.has_gaps
    if has_gaps:
        # An item that was skipped may be any of those that seem to be missing: nothing is called gone.
        completed, follow_ups = (), [_with_gaps(each, spec) for each in follow_ups]
    ending = Ending(
        claim=claim,
        state=JobState.SUCCEEDED,
        reason=f"skipped {skipped} unreadable items; the first: {reading.skipped[0]}" if skipped else "",
        follow_ups=follow_ups,
        cursor=reading.cursor,
        has_gaps=has_gaps,
        calls=calls,
        unchanged_calls=1 if reading.unchanged and calls else 0,
        documents=len(documents),
        skipped=skipped,
        effects=reading.effects,
        credential=credential,
    )
    if not documents and not completed and not reading.effects:
        return JobResult(ending=ending, settlement=settled, status=answer.status)
    return JobResult(
        ending=ending,
        settlement=settled,
        documents=documents,
        completed=completed,
        answer=answer,
        status=answer.status,
    )


def _with_gaps(following: JobSpec, spec: JobSpec) -> JobSpec:
    """A further page of the list of `spec` inherits its gaps; any other job stays as it is."""
    is_same_list = (following.kind, following.resource) == (spec.kind, spec.resource)
    return msgspec.structs.replace(following, has_gaps=True) if is_same_list else following


def _undone(claim: Claim, credential: str, reading: Reading, now: datetime, pauses: Backoff, *, calls: int) -> Ending:
    """The end of a job that did not bring what it was to bring."""
    reason = reading.reason
    match reading.verdict:
        case Verdict.RETRY:
            ending = _retry(claim, credential, reason, now, pauses, delay_ms=reading.delay_ms, calls=calls)
        case Verdict.LATER | Verdict.UNAUTHORIZED:
            wait = _ASK_AGAIN if reading.delay_ms is None else timedelta(milliseconds=reading.delay_ms)
            # Whoever must rest is held back by the gate.
            rests = reading.blocked_ms is not None or (reading.pause_ms is not None and reading.delay_ms is None)
            at_once = reading.verdict is Verdict.UNAUTHORIZED or rests
            ending = _uncounted(claim, credential, reason, None if at_once else now + wait, calls=calls)
        case _:
            state = JobState.UNAVAILABLE if reading.verdict is Verdict.UNAVAILABLE else JobState.FAILED
            ending = Ending(
                claim=claim, state=state, reason=reason, cursor=reading.cursor, calls=calls, credential=credential
            )
    return msgspec.structs.replace(ending, effects=reading.effects) if reading.effects else ending


def _retry(
    claim: Claim,
    credential: str,
    reason: str,
    now: datetime,
    pauses: Backoff,
    *,
    delay_ms: int | None = None,
    calls: int,
) -> Ending:
    if claim.attempt >= claim.max_attempts:
        return Ending(claim=claim, state=JobState.FAILED, reason=reason, calls=calls, credential=credential)
    wait = pauses.delay(claim.attempt) if delay_ms is None else timedelta(milliseconds=delay_ms)
    again_at = now + wait
    return Ending(
        claim=claim, state=JobState.READY, reason=reason, not_before=again_at, calls=calls, credential=credential
    )


def _with_answer(ending: Ending) -> Ending:
    """A job that is tried again keeps the answer that was stored for it, and so makes no further call."""
    if ending.state is not JobState.READY or ending.claim.parked is None:
        return ending
    return msgspec.structs.replace(ending, parked=ending.claim.parked)


def _named(error: Exception) -> str:
    said = words_of(error)
    return f"{type(said).__name__}: {said}"


def _uncounted(claim: Claim, credential: str, reason: str, again_at: datetime | None, *, calls: int = 0) -> Ending:
    """Tried again, and no attempt is counted."""
    return Ending(
        claim=claim,
        state=JobState.READY,
        reason=reason,
        not_before=again_at,
        is_attempt=False,
        calls=calls,
        credential=credential,
    )
