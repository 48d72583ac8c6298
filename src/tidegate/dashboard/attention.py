"""What needs somebody, said in a sentence, with the place where something can be done about it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from tidegate.dashboard.dead_letters import DeadCount
from tidegate.dashboard.processes import ProcessList
from tidegate.dashboard.waiting_jobs import RESTING, PoolWait
from tidegate.engine.credentials import Credential, CredentialState, how_to_get_one, token_variable
from tidegate.engine.reports.overview import FailedJob, JobCounts, RunCounts

Severity = Literal["critical", "warning", "info"]
_ORDER: Sequence[Severity] = ("critical", "warning", "info")
_MOST_CREDENTIALS = 5
MOST_FAILED = 10
"""Of the jobs that failed last, so many are looked at."""
_LATELY = timedelta(minutes=10)
_SERVERS = {"database": "The database", "valkey": "Valkey"}
_WAITING: Mapping[str, tuple[Severity, str, str]] = {
    "no_credential": (
        "critical",
        "#/credentials",
        "No credential serves the pool {pool}; waiting for {bucket}: {jobs}",
    ),
    "blocked": ("warning", "#/quotas", "{who} must rest; waiting for {bucket} in the pool {pool}: {jobs}"),
    "retired": ("warning", "#/credentials", "{who} is refused for good; waiting in the pool {pool}: {jobs}"),
    "exhausted": ("info", "#/quotas", "The quota of {who} for {bucket} is used up; waiting: {jobs}"),
    RESTING: ("info", "#/crawl", "{bucket} asked for a rest; waiting: {jobs}"),
}
"""Other reasons end by themselves in a moment."""


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs somebody, or will end by itself at a known time."""

    severity: Severity
    text: str
    link: str | None
    """Where the dashboard shows more of it."""
    until: datetime | None = None
    """When it ends by itself; null where it does not, or nobody knows."""


class DeploymentState(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to judge; None: it could not be found out."""

    now: datetime
    away: Sequence[str]
    processes: ProcessList | None
    runs: RunCounts | None
    jobs: JobCounts | None
    failed: Sequence[FailedJob]
    """The latest, `MOST_FAILED` at most."""
    waits: Sequence[PoolWait] | None
    credentials: Sequence[Credential] | None
    audiences: Mapping[str, str]
    """The address that credentials are for, by source."""
    awaited_tokens: Mapping[str, str]
    """Why the token of the environment is not in use yet, by source."""
    dead: Sequence[DeadCount]
    open_breakers: Sequence[str]


def find_attention(state: DeploymentState) -> list[Attention]:
    """The most severe first; what is equally severe in a fixed order, so that nothing jumps about."""
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
    return sorted(found, key=lambda each: _ORDER.index(each.severity))


def _servers(state: DeploymentState) -> Iterator[Attention]:
    for name in state.away:
        yield Attention(severity="critical", text=f"{_SERVERS[name]} does not answer", link="#/machinery")
    for name in state.open_breakers:
        spared = _SERVERS.get(name, name)
        yield Attention(severity="warning", text=f"{spared} failed often and is being spared", link="#/machinery")


def _processes(state: DeploymentState) -> Iterator[Attention]:
    if state.processes is None:
        return
    if state.processes.leader is None:
        text = "No process leads: timers, schedules and the ends of runs wait"
        yield Attention(severity="critical", text=text, link="#/machinery")
    if state.jobs is not None and state.jobs.pending and not state.processes.has_workers:
        text = f"No process works: {_count(state.jobs.pending, 'job')} to do. Start one with `tidegate work`"
        yield Attention(severity="critical", text=text, link="#/machinery")


def _waits(waits: Sequence[PoolWait]) -> Iterator[Attention]:
    for wait in waits:
        if wait.reason not in _WAITING:
            continue
        severity, link, sentence = _WAITING[wait.reason]
        who = ", ".join(each.credential for each in wait.credentials[:_MOST_CREDENTIALS])
        jobs = _count(wait.jobs, "job")
        text = sentence.format(who=who, jobs=jobs, pool=wait.pool, bucket=wait.bucket)
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
    """Without a valid credential nothing can be collected, though nothing has failed yet."""
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
        text = f"{how_many} failed in the last {minutes} minutes. The last one: {lately[0].reason}"
        yield Attention(severity="warning", text=text, link=f"#/runs/{lately[0].run_id}")


def _dead(dead: Sequence[DeadCount]) -> Iterator[Attention]:
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
