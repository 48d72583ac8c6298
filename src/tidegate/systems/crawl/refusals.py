"""Answers by which hosts refuse calls, and the pauses that they ask for.

    429                     this identity calls too often       LATER
    503 with Retry-After    the host is busy for all callers    LATER
    401, 403                this identity is refused            LATER with Retry-After, otherwise RETRY
    a captcha               this identity is suspected          RETRY

The identity rests at this host: for the requested time, otherwise for a guess that grows. If the settings apply
Retry-After to the host, no identity calls it for that time; but a ban (401, 403) applies to the refused identity only.
"""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import msgspec

from tidegate.core.clock import milliseconds
from tidegate.engine.source import Reading, Verdict
from tidegate.engine.upstream import Head
from tidegate.systems.crawl.settings import CrawlSettings

_REASONS = {401: "the host requires authentication", 403: "the host refuses this identity", 429: "called too often"}
_BUSY, _BANS = 503, (401, 403)
_SECONDS = re.compile(r"[0-9]{1,12}")


class RefusalRecorded(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An effect: the record of a refusal, which restores a gate that lost its data."""

    reason: str
    blocked_ms: int | None = None
    """How long the identity rests at this host."""
    is_guess: bool = False
    pause_ms: int | None = None
    """How long no identity may call this host."""


def refusal(head: Head, settings: CrawlSettings) -> Reading | None:
    """The meaning of an answer that refuses the call; None for any other answer."""
    wait = retry_after(head, settings)
    # 503 without Retry-After is an ordinary failure, which is retried.
    if head.status == _BUSY:
        return None if wait is None else _later(head.status, "the host asks to wait", wait, settings)
    if head.status not in _REASONS:
        return None
    reason = _REASONS[head.status]
    if wait is not None:
        return _later(head.status, reason, wait, settings)
    return _guess(Verdict.LATER if head.status == 429 else Verdict.RETRY, f"{head.status}: {reason}", settings)


def challenged(settings: CrawlSettings, reason: str = "the host requires a captcha") -> Reading:
    """The meaning of a page with a captcha instead of the requested content."""
    return _guess(Verdict.RETRY, reason, settings)


def retry_after(head: Head, settings: CrawlSettings) -> timedelta | None:
    """The pause that an answer asks for; None if it asks for none.

    A date is compared with the `Date` of the same answer, so that different clocks do not matter.
    """
    text = (head.headers.get("Retry-After") or "").strip()
    if _SECONDS.fullmatch(text):
        wait = timedelta(seconds=min(int(text), settings.longest_retry_after.total_seconds()))
    else:
        until = _date(text)
        if until is None:
            return None
        wait = min(until - (head.date or head.received_at), settings.longest_retry_after)
    return wait if wait > timedelta(0) else None


def _later(status: int, reason: str, wait: timedelta, settings: CrawlSettings) -> Reading:
    """Build the reading that postpones a refused job, and pauses the host, lets the identity rest, or both."""
    # A ban says something about the identity, whatever the setting is.
    binds_host = settings.retry_after_binds == "host" and status not in _BANS
    wait_ms = milliseconds(wait)
    # A busy host refuses all callers, not this identity; but if the pause does not apply to the host, the identity
    # rests.
    blocked_ms = None if status == _BUSY and binds_host else wait_ms
    pause_ms = wait_ms if binds_host else None
    text = f"{status}: {reason}, for {wait.total_seconds():g} s"
    return Reading(
        verdict=Verdict.LATER,
        reason=text,
        blocked_ms=blocked_ms,
        rests_bucket=blocked_ms is not None,
        pause_ms=pause_ms,
        delay_ms=0,  # the gate holds it for the pause
        effects=(RefusalRecorded(reason=text, blocked_ms=blocked_ms, pause_ms=pause_ms),),
    )


def _guess(verdict: Verdict, reason: str, settings: CrawlSettings) -> Reading:
    blocked_ms = milliseconds(settings.first_rest)
    return Reading(
        verdict=verdict,
        reason=reason,
        blocked_ms=blocked_ms,
        is_guess=True,
        rests_bucket=True,
        effects=(RefusalRecorded(reason=reason, blocked_ms=blocked_ms, is_guess=True),),
    )


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
