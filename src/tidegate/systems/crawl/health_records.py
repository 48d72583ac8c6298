"""Refusals of hosts, the pauses that they ask for, and the health of an identity at a host with its records in SQL.

    429                     this identity calls too often       LATER
    503 with Retry-After    the host is busy for all callers    LATER
    401, 403                this identity is refused            LATER with Retry-After, otherwise RETRY
    a captcha               this identity is suspected          RETRY

The identity rests at this host: for the requested time, otherwise for a guess that grows. If the settings apply
Retry-After to the host, no identity calls it for that time; but a ban (401, 403) applies to the refused identity only.

A health of 1 is healthy. Each rest halves the score, each answered call outside a rest adds a twentieth, and time
restores it from 0 to 1 in half an hour, by the same arithmetic as in the gate. A rest of unspecified length is twice as
long as the previous one if it follows soon.

Refusals are recorded in the transaction that ends the jobs that met them. The gate knows them too and decides by them.
The rows restore a gate that lost its data, and are shown while the server is unavailable. Only refusals, and answers to
identities that are not healthy, are written.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import delete, select, update

from tidegate.core.clock import milliseconds
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.engine.job_store import JobResult
from tidegate.engine.lifecycle import JobState
from tidegate.engine.source import Reading, Verdict
from tidegate.engine.upstream import Head
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl import hosts
from tidegate.systems.crawl.hosts import LONGEST_REASON, crawl_identity_health
from tidegate.systems.crawl.identity_records import name_of
from tidegate.systems.crawl.settings import CrawlSettings

_REASONS = {401: "the host requires authentication", 403: "the host refuses this identity", 429: "called too often"}
_BUSY, _BANS = 503, (401, 403)


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
    wait = head.retry_after(longest=settings.longest_retry_after) or None
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


HEALTHY = 1.0
_PER_ANSWER = 0.05
_RECOVERS_IN = timedelta(minutes=30)
_SOON = timedelta(minutes=10)
_LONGEST_GUESS = timedelta(hours=1)


class IdentityHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of an identity at one host."""

    score: float = HEALTHY
    resting_until: datetime | None = None
    rests: int = 0
    """Number of rests in close succession."""
    refusals: int = 0
    updated_at: datetime

    def score_at(self, now: datetime) -> float:
        """The score after recovery by time."""
        recovered = max(timedelta(0), now - self.updated_at) / _RECOVERS_IN
        return min(HEALTHY, self.score + recovered)

    def is_resting(self, now: datetime) -> bool:
        """Whether it must not call the host at this moment."""
        return self.resting_until is not None and now < self.resting_until

    def refused(self, now: datetime, span: timedelta, *, is_guess: bool) -> "IdentityHealth":
        """Record a refusal. A refusal during a rest belongs to that rest, because its call was sent before."""
        until, rests, score = self.resting_until, self.rests, self.score_at(now)
        if not self.is_resting(now):
            # Refusals in close succession make the rests longer; after a time without refusals the count starts again.
            rests = rests + 1 if until is not None and now - until < _SOON else 1
            score /= 2
        if is_guess:
            # The exponent is bounded, because a timedelta would overflow.
            span = max(span, min(span * 2 ** min(max(rests, 1) - 1, 30), _LONGEST_GUESS))
        return IdentityHealth(
            score=score,
            # A refusal of a call that was sent earlier must not shorten the rest.
            resting_until=max(until or now, now + span),
            rests=rests,
            refusals=self.refusals + 1,
            updated_at=now,
        )

    def answered(self, now: datetime) -> "IdentityHealth":
        """Record an answered call. During a rest it changes nothing, because its call was sent before."""
        if self.is_resting(now):
            return self
        score = min(HEALTHY, self.score_at(now) + _PER_ANSWER)
        return msgspec.structs.replace(self, score=score, updated_at=now)


_ANSWERED = frozenset({JobState.SUCCEEDED, JobState.UNAVAILABLE})
_c = crawl_identity_health.c
_Key = tuple[str, str]


class HostHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of an identity at a host that has refused it."""

    host: str
    score: float
    """1 is healthy."""
    resting_until: datetime | None
    """None if it is not resting."""
    refusals: int
    last_reason: str | None
    updated_at: datetime


def note(tx: Transaction, endings: Sequence[JobResult]) -> None:
    """Record the refusals and pauses that these jobs met."""
    met: dict[_Key, list[RefusalRecorded | None]] = {}
    pauses: dict[str, RefusalRecorded] = {}
    for ending in endings:
        # A job that made no call says nothing about the host.
        if not ending.calls:
            continue
        host, refused = ending.claim.job.spec.bucket, _refusal_in(ending)
        if refused is not None and refused.pause_ms is not None:
            longest = pauses.get(host)
            pauses[host] = max(longest or refused, refused, key=lambda one: one.pause_ms or 0)
        if refused is not None or ending.state in _ANSWERED:
            is_rest = refused is not None and refused.blocked_ms is not None  # otherwise only the host is busy
            met.setdefault((name_of(ending.credential), host), []).append(refused if is_rest else None)
    if met:
        _note_health(tx, met)
    for host in sorted(pauses):
        until = tx.now + timedelta(milliseconds=pauses[host].pause_ms or 0)
        hosts.rest(tx, host, until, pauses[host].reason)


def health_of(tx: Transaction, identities: Sequence[str] | None = None) -> dict[str, list[HostHealth]]:
    """Current health of identities at hosts that refused them, by name; None selects all identities."""
    query = select(crawl_identity_health).order_by(_c.identity, _c.host)
    if identities is not None:
        query = query.where(_c.identity.in_(identities))
    by_identity: dict[str, list[HostHealth]] = {}
    for row in tx.execute(query):
        health = msgspec.convert(row, IdentityHealth, from_attributes=True)
        by_identity.setdefault(row.identity, []).append(
            HostHealth(
                host=row.host,
                score=health.score_at(tx.now),
                resting_until=health.resting_until if health.is_resting(tx.now) else None,
                refusals=row.refusals,
                last_reason=row.last_reason,
                updated_at=row.updated_at,
            )
        )
    return by_identity


def forget_health(tx: Transaction, identity: str) -> None:
    """Delete the health of a removed identity."""
    tx.execute(delete(crawl_identity_health).where(_c.identity == identity))


def _refusal_in(ending: JobResult) -> RefusalRecorded | None:
    return next((effect for effect in ending.effects if isinstance(effect, RefusalRecorded)), None)


def _note_health(tx: Transaction, met: Mapping[_Key, Sequence[RefusalRecorded | None]]) -> None:
    """Update health rows, sorted, so that concurrent writers lock them in the same order."""
    refused = [key for key in sorted(met) if any(one is not None for one in met[key])]
    fresh = {"score": HEALTHY, "rests": 0, "refusals": 0, "updated_at": tx.now}
    rows = [{"identity": identity, "host": host, **fresh} for identity, host in refused]
    # Insert first: only an existing row can be locked.
    tx.insert_many(crawl_identity_health, rows, skip_existing=True)
    for key in sorted({*refused, *_degraded(tx, met)}):
        this = (_c.identity == key[0], _c.host == key[1])
        row = tx.execute(select(crawl_identity_health).where(*this).with_for_update()).first()
        if row is not None:  # otherwise it was deleted in the meantime
            health = msgspec.convert(row, IdentityHealth, from_attributes=True)
            values = _after(health, met[key], tx.now) | _reason_of(met[key])
            tx.execute(update(crawl_identity_health).where(*this).values(values))


def _degraded(tx: Transaction, met: Mapping[_Key, Sequence[RefusalRecorded | None]]) -> list[_Key]:
    """The keys with a health that an answered call improves."""
    names, places = {key[0] for key in met}, {key[1] for key in met}
    query = select(_c.identity, _c.host, _c.score, _c.updated_at)
    rows = tx.execute(query.where(_c.identity.in_(sorted(names)), _c.host.in_(sorted(places)), _c.score < HEALTHY))
    degraded = (
        (row.identity, row.host)
        for row in rows
        if IdentityHealth(score=row.score, updated_at=row.updated_at).score_at(tx.now) < HEALTHY
    )
    return [key for key in degraded if key in met]


def _after(health: IdentityHealth, what: Sequence[RefusalRecorded | None], now: datetime) -> dict[str, object]:
    for one in what:
        if one is None:
            health = health.answered(now)
        else:
            health = health.refused(now, timedelta(milliseconds=one.blocked_ms or 0), is_guess=one.is_guess)
    return msgspec.structs.asdict(health)


def _reason_of(what: Sequence[RefusalRecorded | None]) -> dict[str, object]:
    reasons = [one.reason for one in what if one is not None]
    return {"last_reason": fit_to_keep(reasons[-1], most=LONGEST_REASON)} if reasons else {}
