"""What an answer, or the lack of one, means for its job and for its permit."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from tidegate.collect.ledger import Claim, Ending
from tidegate.collect.lifecycle import JobState
from tidegate.collect.parking import Parked
from tidegate.collect.source import Reading, Verdict
from tidegate.database.faults import words_of
from tidegate.documents import Document, Listing
from tidegate.flow.gate import Admitted, Outcome, Settlement, settlement
from tidegate.kernel.backoff import Backoff
from tidegate.upstream import Answer, UpstreamFailed

_PAUSES = Backoff(first=timedelta(seconds=2), most=timedelta(minutes=10))
_ASK_AGAIN = timedelta(seconds=5)
_LONGEST_PARKED = timedelta(minutes=1)


class Finished(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A claimed job that was worked on: what to write, and how its permit ends."""

    ending: Ending
    settlement: Settlement
    documents: Sequence[Document] = ()
    completed: Sequence[Listing] = ()
    answer: Answer | None = None
    """Whatever the documents were read from, in case they cannot be written."""

    @property
    def needs_store(self) -> bool:
        """Whether the document store has to be asked."""
        return bool(self.documents or self.completed)

    @property
    def weight(self) -> int:
        """How much work it is to write, next to a result that leads to nothing."""
        return 1 + len(self.ending.follow_ups) // 4

    @property
    def size(self) -> int:
        """In bytes, about: what is held of it until it is written."""
        return 0 if self.answer is None else len(self.answer.body)


def from_success(claim: Claim, admitted: Admitted, reading: Reading, answer: Answer) -> Finished:
    """The upstream answered what was asked."""
    settled = settlement(admitted, allowance=reading.allowance, bucket=reading.allowance_bucket)
    return _done(claim, reading, settled, answer, answer.calls)


def from_reading(claim: Claim, admitted: Admitted, reading: Reading, answer: Answer, now: datetime) -> Finished:
    """The upstream answered something else."""
    settled = settlement(
        admitted,
        allowance=reading.allowance,
        bucket=reading.allowance_bucket,
        blocked_ms=reading.blocked_ms,
        is_guess=reading.is_guess,
        retired=reading.verdict is Verdict.UNAUTHORIZED,
    )
    calls = answer.calls
    match reading.verdict:
        case Verdict.DONE:
            return _done(claim, reading, settled, answer, calls)
        case Verdict.GONE | Verdict.UNAVAILABLE:
            state = JobState.FAILED if reading.verdict is Verdict.GONE else JobState.UNAVAILABLE
            ending = Ending(claim=claim, state=state, reason=reading.reason, cursor=reading.cursor, calls=calls)
        case Verdict.RETRY:
            ending = _retry(claim, reading.reason, now, reading.delay_ms, calls=calls)
        case Verdict.LATER | Verdict.UNAUTHORIZED:
            wait = _ASK_AGAIN if reading.delay_ms is None else timedelta(milliseconds=reading.delay_ms)
            at_once = reading.verdict is Verdict.UNAUTHORIZED or reading.blocked_ms is not None
            ending = _uncounted(claim, reading.reason, None if at_once else now + wait, calls=calls)
    return Finished(ending=ending, settlement=settled)


def from_parked(claim: Claim, admitted: Admitted, reading: Reading, answer: Answer) -> Finished:
    """The answer was there already, and no call was made. What cannot be read from it any more is asked for again."""
    unused = settlement(admitted, Outcome.UNUSED)
    if reading.verdict is Verdict.DONE:
        return _done(claim, reading, unused, answer, 0)
    return Finished(ending=_uncounted(claim, f"the parked answer: {reading.reason}", None), settlement=unused)


def to_parked(finished: Finished, why: str, now: datetime) -> Finished:
    """The documents cannot be written now: keep the answer, and try again soon, later and later."""
    claim, answer = finished.ending.claim, finished.answer
    parked = claim.parked
    if parked is None and answer is not None:
        parked = Parked(finished.settlement.credential, answer.pack(), now)
    age = timedelta() if parked is None else now - parked.parked_at
    wait = min(max(_ASK_AGAIN, age), _LONGEST_PARKED)
    ending = _uncounted(claim, f"the answer is kept: {why}", now + wait, calls=finished.ending.calls)
    ending = msgspec.structs.replace(ending, parked=parked, unchanged_calls=finished.ending.unchanged_calls)
    return Finished(ending=ending, settlement=finished.settlement)


def from_failure(
    claim: Claim, admitted: Admitted, failure: UpstreamFailed, now: datetime, said: Reading | None = None
) -> Finished:
    """No whole answer came. Unless it is certain that the call was not made, it counts as made.

    `said` is what its beginning said, if there was one: only what it tells of the credential counts.
    """
    said, outcome = said or Reading(), Outcome.UNUSED if failure.was_sent is False else Outcome.UNKNOWN
    settled = settlement(
        admitted,
        outcome if said.allowance is None else Outcome.ANSWERED,
        allowance=said.allowance,
        bucket=said.allowance_bucket,
        blocked_ms=said.blocked_ms,
        is_guess=said.is_guess,
    )
    calls = len(failure.redirects) + (failure.was_sent is not False)
    return Finished(ending=_retry(claim, str(failure), now, calls=calls), settlement=settled)


def from_defect(claim: Claim, admitted: Admitted, error: Exception, now: datetime, *, calls: int = 0) -> Finished:
    """The source could not make the request, or not read the answer: unknown is transient, and bounded."""
    settled = settlement(admitted, Outcome.UNKNOWN if calls else Outcome.UNUSED)
    return Finished(ending=_retry(claim, _named(error), now, calls=calls), settlement=settled)


def to_refused(finished: Finished, error: Exception, now: datetime) -> Finished:
    """What it brought cannot be written, and not because somebody is away: tried again, a limited number of times."""
    ending = _retry(finished.ending.claim, _named(error), now, calls=finished.ending.calls)
    return Finished(ending=ending, settlement=finished.settlement)


def from_poison(claim: Claim, admitted: Admitted) -> Finished:
    """Every worker that had this job died; the next one does not try."""
    reason = f"{admitted.deliveries - 1} workers died with this job"
    return Finished(
        ending=Ending(claim=claim, state=JobState.FAILED, reason=reason),
        settlement=settlement(admitted, Outcome.UNUSED),
    )


def _done(claim: Claim, reading: Reading, settled: Settlement, answer: Answer, calls: int) -> Finished:
    documents, completed = reading.documents, reading.completed
    ending = Ending(
        claim=claim,
        state=JobState.SUCCEEDED,
        follow_ups=reading.follow_ups,
        cursor=reading.cursor,
        calls=calls,
        unchanged_calls=1 if reading.unchanged and calls else 0,
        documents=len(documents),
    )
    if not documents and not completed:
        return Finished(ending=ending, settlement=settled)
    return Finished(ending=ending, settlement=settled, documents=documents, completed=completed, answer=answer)


def _retry(claim: Claim, reason: str, now: datetime, delay_ms: int | None = None, *, calls: int) -> Ending:
    if claim.attempt >= claim.max_attempts:
        return Ending(claim=claim, state=JobState.FAILED, reason=reason, calls=calls)
    wait = _PAUSES.delay(claim.attempt) if delay_ms is None else timedelta(milliseconds=delay_ms)
    return Ending(claim=claim, state=JobState.READY, reason=reason, not_before=now + wait, calls=calls)


def _named(error: Exception) -> str:
    said = words_of(error)
    return f"{type(said).__name__}: {said}"


def _uncounted(claim: Claim, reason: str, again_at: datetime | None, *, calls: int = 0) -> Ending:
    """Tried again, and no attempt is counted."""
    return Ending(claim=claim, state=JobState.READY, reason=reason, not_before=again_at, is_attempt=False, calls=calls)
