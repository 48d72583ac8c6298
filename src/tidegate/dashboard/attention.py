"""What the overview shows beside its figures: why jobs wait, and conditions that need an operator."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from tidegate.dashboard.dead_letters import DeadLetterCount
from tidegate.dashboard.runtime_status import ProcessList
from tidegate.engine.api.run_details import Wait, moment, waits_of
from tidegate.engine.credentials import Credential, CredentialState, how_to_get_one, token_variable
from tidegate.engine.reports.overview import FailedJob, JobCounts, RunCounts
from tidegate.primitives.gate import PoolStatus

RESTING = "resting"
"""The upstream asked all credentials to pause."""


class CredentialWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why one credential cannot make a call now."""

    credential: str
    reason: str
    """One of blocked, retired, concurrency, minute, probing and exhausted."""
    opens_at: datetime | None
    """When it can make a call; null if that depends on a call in progress, or is unknown."""


class PoolWait(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting jobs of one pool and bucket, with the reason."""

    pool: str
    bucket: str
    jobs: int
    reason: str
    """The reason of the credential that can call first; no_credential without one; resting if all must pause."""
    until: datetime | None
    """When the first call is possible; null if that depends on a call in progress, or is unknown."""
    credentials: list[CredentialWait]


def pool_waits(statuses: Mapping[str, PoolStatus], known: Sequence[Credential], now: datetime) -> list[PoolWait]:
    """Why jobs wait in these pools, the earliest end first; pools that can call at once are omitted."""
    found = [each for pool, status in statuses.items() for each in _waits_in(pool, status, known, now)]
    return sorted(found, key=lambda each: (each.until is None, each.until or now, each.pool, each.bucket))


def _waits_in(pool: str, status: PoolStatus, known: Sequence[Credential], now: datetime) -> list[PoolWait]:
    by_bucket: dict[str, list[Wait]] = {}
    for wait in waits_of(status, known, now):
        by_bucket.setdefault(wait.bucket, []).append(wait)
    found = [_joined(pool, bucket, status.waiting[bucket], waits) for bucket, waits in by_bucket.items()]
    for pace in status.paces:
        jobs = status.waiting.get(pace.bucket, 0)
        # The whole bucket rests, although each credential could make a call.
        if jobs and pace.rests_in_ms > 0 and pace.bucket not in by_bucket:
            until = moment(now, pace.rests_in_ms)
            found.append(
                PoolWait(pool=pool, bucket=pace.bucket, jobs=jobs, reason=RESTING, until=until, credentials=[])
            )
    return found


def _joined(pool: str, bucket: str, jobs: int, waits: Sequence[Wait]) -> PoolWait:
    """Combine the waits of all credentials; the one that can call first gives the reason, retired ones come last."""
    first = min(waits, key=lambda wait: (wait.reason == "retired", wait.opens_at is None, wait.opens_at))
    credentials = [
        CredentialWait(credential=wait.credential, reason=wait.reason, opens_at=wait.opens_at)
        for wait in waits
        if wait.credential is not None
    ]
    return PoolWait(
        pool=pool, bucket=bucket, jobs=jobs, reason=first.reason, until=first.opens_at, credentials=credentials
    )


Severity = Literal["critical", "warning", "info"]
_ORDER: Sequence[Severity] = ("critical", "warning", "info")
_MOST_CREDENTIALS = 5
MOST_FAILED = 10
"""Number of most recently failed jobs that are evaluated."""
_LATELY = timedelta(minutes=10)
_SERVERS = {"database": "The database", "valkey": "Valkey"}
_WAITING: Mapping[str, tuple[Severity, str, str]] = {
    "no_credential": (
        "critical",
        "#/credentials",
        "No credential serves the pool {pool}; waiting for {bucket}: {jobs}",
    ),
    "blocked": ("warning", "#/quotas", "{credential} is blocked; waiting for {bucket} in the pool {pool}: {jobs}"),
    "retired": ("warning", "#/credentials", "{credential} is permanently refused; waiting in the pool {pool}: {jobs}"),
    "exhausted": ("info", "#/quotas", "The quota of {credential} for {bucket} is used up; waiting: {jobs}"),
    RESTING: ("info", "#/crawl", "{bucket} is paused by the upstream; waiting: {jobs}"),
}
"""Other reasons resolve themselves within seconds."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that needs an operator, or that ends by itself at a known time."""

    severity: Severity
    text: str
    link: str | None
    """The dashboard page with details."""
    until: datetime | None = None
    """When it ends by itself; null if it does not, or if that is unknown."""


class DeploymentState(msgspec.Struct, frozen=True, kw_only=True):
    """The state to evaluate; None: could not be read."""

    now: datetime
    away: Sequence[str]
    processes: ProcessList | None
    runs: RunCounts | None
    jobs: JobCounts | None
    failed: Sequence[FailedJob]
    """The most recently failed jobs, at most `MOST_FAILED`."""
    waits: Sequence[PoolWait] | None
    credentials: Sequence[Credential] | None
    audiences: Mapping[str, str]
    """For each source, the upstream address of its credentials."""
    awaited_tokens: Mapping[str, str]
    """For each source, why the token of the environment is not used yet."""
    dead: Sequence[DeadLetterCount]
    open_breakers: Sequence[str]


def find_attention(state: DeploymentState) -> list[Attention]:
    """All conditions, the most severe first; the order of equally severe ones is fixed, so that the list is stable."""
    found = [
        *_servers(state),
        *_processes(state),
        *_waits(state.waits or ()),
        *_credentials(state.credentials or ()),
        *_unserved(state),
        *_failing(state.failed, state.now),
        *_dead(state.dead),
        *_runs(state.runs),
    ]
    # `sorted` is stable, so conditions of one severity keep the order above.
    return sorted(found, key=lambda each: _ORDER.index(each.severity))


def _servers(state: DeploymentState) -> Iterator[Attention]:
    for name in state.away:
        yield Attention(severity="critical", text=f"{_SERVERS[name]} does not answer", link="#/runtime")
    for name in state.open_breakers:
        text = f"{_SERVERS.get(name, name)} failed repeatedly: the circuit breaker is open"
        yield Attention(severity="warning", text=text, link="#/runtime")


def _processes(state: DeploymentState) -> Iterator[Attention]:
    if state.processes is None:
        return
    if state.processes.leader is None:
        text = "There is no leader: timers, schedules and the completion of runs are delayed"
        yield Attention(severity="critical", text=text, link="#/runtime")
    if state.jobs is not None and state.jobs.pending and not state.processes.has_workers:
        text = f"No worker is running: {_count(state.jobs.pending, 'job')} pending. Start one with `tidegate work`"
        yield Attention(severity="critical", text=text, link="#/runtime")


def _waits(waits: Sequence[PoolWait]) -> Iterator[Attention]:
    for wait in waits:
        if wait.reason not in _WAITING:
            continue
        severity, link, sentence = _WAITING[wait.reason]
        credential = ", ".join(each.credential for each in wait.credentials[:_MOST_CREDENTIALS])
        jobs = _count(wait.jobs, "job")
        text = sentence.format(credential=credential, jobs=jobs, pool=wait.pool, bucket=wait.bucket)
        yield Attention(severity=severity, text=text, link=link, until=wait.until)


def _credentials(credentials: Sequence[Credential]) -> Iterator[Attention]:
    refused = [each for each in credentials if each.state is CredentialState.INVALID]
    for each in refused[:_MOST_CREDENTIALS]:
        why = f": {each.invalid_reason}" if each.invalid_reason else ""
        text = f"The credential {each.name} is refused{why}"
        yield Attention(severity="warning", text=text, link="#/credentials")
    if len(refused) > _MOST_CREDENTIALS:
        text = f"{len(refused) - _MOST_CREDENTIALS} more credentials are refused"
        yield Attention(severity="warning", text=text, link="#/credentials")


def _unserved(state: DeploymentState) -> Iterator[Attention]:
    """Warn of sources without a valid credential, even before a job failed."""
    for source, reason in state.awaited_tokens.items():
        text = f"{token_variable(source)} is not in use yet: {reason}"
        yield Attention(severity="warning", text=text, link="#/credentials")
    known = state.credentials
    for source, audience in state.audiences.items():
        if source in state.awaited_tokens or known is None:
            continue
        if not any(_may_call(each, source, audience) for each in known):
            text = f"There is no valid credential for {audience}, so nothing can be collected: {how_to_get_one(source)}"
            yield Attention(severity="info", text=text, link="#/credentials")


def _may_call(credential: Credential, source: str, audience: str) -> bool:
    return credential.state is CredentialState.VALID and credential.source == source and credential.audience == audience


def _failing(latest: Sequence[FailedJob], now: datetime) -> Iterator[Attention]:
    """Warn of recent failures with the latest reason, such as an unreachable upstream."""
    lately = [job for job in latest if job.at is not None and now - job.at < _LATELY]
    if lately:
        how_many = f"{MOST_FAILED} jobs or more" if len(lately) == MOST_FAILED else _count(len(lately), "job")
        minutes = round(_LATELY.total_seconds() / 60)
        text = f"{how_many} failed in the last {minutes} minutes. Latest reason: {lately[0].reason}"
        yield Attention(severity="warning", text=text, link=f"#/runs/{lately[0].run_id}")


def _dead(dead: Sequence[DeadLetterCount]) -> Iterator[Attention]:
    for each in dead:
        if each.count:
            text = f"{_count(each.count, 'dead letter')} of {each.label}"
            yield Attention(severity="warning", text=text, link=each.link)


def _runs(runs: RunCounts | None) -> Iterator[Attention]:
    if runs is not None and runs.failed:
        text = f"{_count(runs.failed, 'run')} failed in the last 24 hours"
        yield Attention(severity="info", text=text, link="#/runs?state=failed")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
