"""What an answer, or the lack of one, means for its job and for its permit."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from tidegate.collect.ledger import Claim, Ending
from tidegate.collect.lifecycle import JobState
from tidegate.collect.source import Reading, Verdict
from tidegate.documents import Document, Listing
from tidegate.flow.gate import Admitted, Outcome, Settlement, settlement
from tidegate.kernel.backoff import Backoff
from tidegate.upstream import UpstreamFailed

_PAUSES = Backoff(first=timedelta(seconds=2), most=timedelta(minutes=10))
_ASK_AGAIN = timedelta(seconds=5)


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed job that was worked on: what to write, and how its permit ends."""

    ending: Ending
    settlement: Settlement
    documents: Sequence[Document] = ()
    completed: Sequence[Listing] = ()


def from_reading(claim: Claim, admitted: Admitted, reading: Reading, now: datetime) -> Finished:
    """The upstream answered."""
    settled = settlement(
        admitted,
        allowance=reading.allowance,
        bucket=reading.allowance_bucket,
        blocked_ms=reading.blocked_ms,
        retired=reading.verdict is Verdict.UNAUTHORIZED,
    )
    match reading.verdict:
        case Verdict.DONE:
            ending = Ending(claim=claim, state=JobState.SUCCEEDED, follow_ups=reading.follow_ups, cursor=reading.cursor)
            return Finished(ending=ending, settlement=settled, documents=reading.documents, completed=reading.completed)
        case Verdict.GONE:
            ending = Ending(claim=claim, state=JobState.FAILED, reason=reading.reason)
        case Verdict.RETRY:
            ending = _retry(claim, reading.reason, now, reading.delay_ms)
        case Verdict.LATER | Verdict.UNAUTHORIZED:
            wait = _ASK_AGAIN if reading.delay_ms is None else timedelta(milliseconds=reading.delay_ms)
            again_at = now if reading.verdict is Verdict.UNAUTHORIZED or reading.blocked_ms else now + wait
            ending = Ending(
                claim=claim, state=JobState.READY, reason=reading.reason, not_before=again_at, is_attempt=False
            )
    return Finished(ending=ending, settlement=settled)


def from_failure(claim: Claim, admitted: Admitted, failure: UpstreamFailed, now: datetime) -> Finished:
    """No whole answer came. Unless it is certain that the call was not made, it counts as made."""
    outcome = Outcome.UNUSED if failure.was_sent is False else Outcome.UNKNOWN
    return Finished(ending=_retry(claim, str(failure), now), settlement=settlement(admitted, outcome))


def from_defect(claim: Claim, admitted: Admitted, error: Exception, now: datetime) -> Finished:
    """The source could not make the request or read the answer: unknown is transient, and bounded."""
    return Finished(
        ending=_retry(claim, f"{type(error).__name__}: {error}", now), settlement=settlement(admitted, Outcome.UNKNOWN)
    )


def from_poison(claim: Claim, admitted: Admitted) -> Finished:
    """Every worker that had this job died; the next one does not try."""
    reason = f"{admitted.deliveries - 1} workers died with this job"
    return Finished(
        ending=Ending(claim=claim, state=JobState.FAILED, reason=reason),
        settlement=settlement(admitted, Outcome.UNUSED),
    )


def _retry(claim: Claim, reason: str, now: datetime, delay_ms: int | None = None) -> Ending:
    if claim.attempt >= claim.max_attempts:
        return Ending(claim=claim, state=JobState.FAILED, reason=reason)
    wait = _PAUSES.delay(claim.attempt) if delay_ms is None else timedelta(milliseconds=delay_ms)
    return Ending(claim=claim, state=JobState.READY, reason=reason, not_before=now + wait)
