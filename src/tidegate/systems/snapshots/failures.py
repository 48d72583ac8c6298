"""What a call's end means for its event.

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

import sys
import traceback
from datetime import datetime, timedelta

import msgspec

from tidegate.core.errors import InvalidArgument, Unavailable
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.upstream import Answer, Head, UpstreamFailed
from tidegate.engine.upstream.redirects import is_redirect, target_of
from tidegate.systems.snapshots.event import DeadUpdate, DeathReason, as_json
from tidegate.systems.snapshots.subject import Found, Missing, SnapshotKind, Unreadable

_REST = timedelta(seconds=1)
"""Where the upstream says "too many" and not for how long."""
_LONGEST_REST = timedelta(hours=24)
_LONGEST_SUBJECT = 640
"""More than any subject's name has, so that what is cut is nobody's."""
_LONGEST_MESSAGE = 2000
_LONGEST_TRACE = 8000
_MARGIN = 4
_LONGEST_IDENTITY = 80


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """It will not be tried again by itself."""

    reason: DeathReason
    message: str
    trace: str | None = None


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream failed, and may not do so next time."""

    message: str


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream wants no calls for so long; this one does not count."""

    span: timedelta


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream redirects the call."""

    target: str


Verdict = Found | Missing | Dead | Again | Rest | Moved


def judge(kind: SnapshotKind, key: str, upstream_id: str | None, answer: Answer) -> Verdict:
    """What an answer means that was asked for with this key, and this id of the upstream where one is known."""
    if answer.status in (200, 404):
        return _read(kind, key, upstream_id, answer)
    if is_redirect(answer):
        try:
            return Moved(target=target_of(answer))
        except InvalidArgument as error:
            return Dead(reason=DeathReason.PARSE_ERROR, message=f"the upstream answered {answer.status}: {error}")
    if answer.status == 429:
        return Rest(span=_rest(answer))
    message = f"the upstream answered {answer.status}"
    if 400 <= answer.status < 500:
        return Dead(reason=DeathReason.UPSTREAM_4XX, message=message)
    if answer.status >= 500:
        return Again(message=message)
    return Dead(reason=DeathReason.PARSE_ERROR, message=f"{message}, which nobody expects")


def judge_failure(error: UpstreamFailed) -> Verdict:
    """What it means that there was no whole answer."""
    if isinstance(error, Unavailable):
        return Again(message=error.summary)
    return Dead(reason=DeathReason.PARSE_ERROR, message=error.summary)


def dead_update(
    *, event: bytes, subject_id: str, dead: Dead, retries: int, failed_at: datetime, worker: str
) -> DeadUpdate:
    """The dead letter; secrets that an upstream's words may hold are taken out of it.

    All of it is bounded: a letter that no transport takes would come back for ever.
    """
    return DeadUpdate(
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


def _read(kind: SnapshotKind, key: str, upstream_id: str | None, answer: Answer) -> Found | Missing | Dead:
    try:
        verdict = kind.read(key, answer)
    except Unreadable as error:
        return Dead(reason=DeathReason.PARSE_ERROR, message=str(error), trace=trace_of(error))
    except Exception as error:  # a defect of the kind: no other worker would fare better
        message = f"the kind could not read the answer: {type(error).__name__}: {error}"
        return Dead(reason=DeathReason.PARSE_ERROR, message=message, trace=trace_of(error))
    if isinstance(verdict, Found) and (not verdict.identity or verdict.identity not in (key, upstream_id)):
        identity = str(verdict.identity)[:_LONGEST_IDENTITY]
        message = f"the subject {key!r} was asked for, and the answer is for {identity!r}"
        return Dead(reason=DeathReason.WRONG_SUBJECT, message=message)
    return verdict


def trace_of(error: BaseException) -> str:
    """Where it was raised."""
    return "".join(traceback.format_exception(error))


def _last_of(trace: str) -> str:
    return fit_to_keep(trace[-_MARGIN * _LONGEST_TRACE :], most=sys.maxsize)[-_LONGEST_TRACE:]


def unfit(error: InvalidArgument) -> Dead:
    """The subject cannot be asked for at all."""
    return Dead(reason=DeathReason.PARSE_ERROR, message=str(error))


def _rest(head: Head) -> timedelta:
    """How long the upstream wants to be left alone."""
    given = head.headers.get("Retry-After", "").strip()
    if given.isascii() and given.isdigit():
        return min(max(timedelta(seconds=int(given[:9])), _REST), _LONGEST_REST)
    return _REST
