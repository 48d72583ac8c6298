"""Answers of hosts that do not want to be called now, and what they ask for.

    429                     this identity asks too often        LATER
    503 with Retry-After    the host asks everybody to wait     LATER
    401, 403                this identity is refused            LATER where it is told when to return, else RETRY
    a captcha               this identity is suspected          RETRY

The identity rests at this host: as long as it was told, else for a guess that grows. Where the settings say that a
Retry-After binds the host, nobody calls it for so long; but a ban (401, 403) is about the one who is banned.
"""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import msgspec

from tidegate.core.clock import milliseconds
from tidegate.engine.source import Reading, Verdict
from tidegate.engine.upstream import Head
from tidegate.systems.crawl.settings import CrawlSettings

_REASONS = {401: "the host wants to know who calls", 403: "the host refuses this identity", 429: "called too often"}
_BUSY, _BANS = 503, (401, 403)
_SECONDS = re.compile(r"[0-9]{1,12}")


class Refused(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An effect: what is remembered of a refusal, should the gate forget it."""

    reason: str
    blocked_ms: int | None = None
    """For how long the identity rests at this host."""
    is_guess: bool = False
    pause_ms: int | None = None
    """For how long nobody calls this host."""


def refusal(head: Head, settings: CrawlSettings) -> Reading | None:
    """What an answer means by which the host refuses to be called now; None for any other answer."""
    wait = retry_after(head, settings)
    if head.status == _BUSY:
        return None if wait is None else _later(head.status, "the host asks to wait", wait, settings)
    if head.status not in _REASONS:
        return None
    reason = _REASONS[head.status]
    if wait is not None:
        return _later(head.status, reason, wait, settings)
    return _guess(Verdict.LATER if head.status == 429 else Verdict.RETRY, f"{head.status}: {reason}", settings)


def challenged(settings: CrawlSettings, reason: str = "the host wants a proof that a human calls") -> Reading:
    """What a page means that asks for a captcha instead of showing what was asked for."""
    return _guess(Verdict.RETRY, reason, settings)


def retry_after(head: Head, settings: CrawlSettings) -> timedelta | None:
    """For how long an answer asks to wait; None where it does not say, or asks for nothing.

    A date is compared with the one that the answer itself was sent at, so that it does not matter how clocks differ.
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
    binds_host = settings.retry_after_binds == "host" and status not in _BANS
    wait_ms = milliseconds(wait)
    # Whoever is busy says nothing of the one who called; but if it binds nobody else, it binds him.
    blocked_ms = None if status == _BUSY and binds_host else wait_ms
    pause_ms = wait_ms if binds_host else None
    told = f"{status}: {reason}, for {wait.total_seconds():g} s"
    return Reading(
        verdict=Verdict.LATER,
        reason=told,
        blocked_ms=blocked_ms,
        rests_bucket=blocked_ms is not None,
        pause_ms=pause_ms,
        delay_ms=0,  # it waits at the gate, which knows how long
        effects=(Refused(reason=told, blocked_ms=blocked_ms, pause_ms=pause_ms),),
    )


def _guess(verdict: Verdict, reason: str, settings: CrawlSettings) -> Reading:
    blocked_ms = milliseconds(settings.first_rest)
    return Reading(
        verdict=verdict,
        reason=reason,
        blocked_ms=blocked_ms,
        is_guess=True,
        rests_bucket=True,
        effects=(Refused(reason=reason, blocked_ms=blocked_ms, is_guess=True),),
    )


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
