"""What needs somebody, said in a sentence, with the place where something can be done about it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from tidegate.dashboard.dead import DeadCount
from tidegate.dashboard.processes import Community
from tidegate.dashboard.waits import RESTING, PoolWait
from tidegate.engine.credentials import Credential, State
from tidegate.engine.overview import FailedJob, JobCounts, RunCounts
from tidegate.systems.github.settings import HOW_TO_GET_ONE, VARIABLE

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


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to judge; None: it could not be found out."""

    now: datetime
    away: Sequence[str]
    community: Community | None
    runs: RunCounts | None
    jobs: JobCounts | None
    failed: Sequence[FailedJob]
    """The latest, `MOST_FAILED` at most."""
    waits: Sequence[PoolWait] | None
    credentials: Sequence[Credential] | None
    audience: str
    """The address that credentials are for."""
    late_token: str | None
    """Why the token of the environment is not in use yet; None where nothing waits for it."""
    dead: Sequence[DeadCount]
    open_breakers: Sequence[str]


def attention_to(sight: Sight) -> list[Attention]:
    """The most severe first; what is equally severe in a fixed order, so that nothing jumps about."""
    found = [
        *_servers(sight),
        *_processes(sight),
        *_waits(sight.waits or ()),
        *_credentials(sight.credentials or ()),
        *_unserved(sight),
        *_failing(sight.failed, sight.now),
        *_dead(sight.dead),
        *_runs(sight.runs),
    ]
    return sorted(found, key=lambda each: _ORDER.index(each.severity))


def _servers(sight: Sight) -> Iterator[Attention]:
    for name in sight.away:
        yield Attention(severity="critical", text=f"{_SERVERS[name]} does not answer", link="#/machinery")
    for name in sight.open_breakers:
        spared = _SERVERS.get(name, name)
        yield Attention(severity="warning", text=f"{spared} failed often and is being spared", link="#/machinery")


def _processes(sight: Sight) -> Iterator[Attention]:
    if sight.community is None:
        return
    if sight.community.leader is None:
        text = "No process leads: timers, schedules and the ends of runs wait"
        yield Attention(severity="critical", text=text, link="#/machinery")
    if sight.jobs is not None and sight.jobs.pending and not sight.community.works:
        text = f"No process works: {_count(sight.jobs.pending, 'job')} to do. Start one with `tidegate work`"
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
    refused = [each for each in credentials if each.state is State.INVALID]
    for each in refused[:_MOST_CREDENTIALS]:
        why = f": {each.invalid_reason}" if each.invalid_reason else ""
        text = f"The credential {each.name} is refused{why}"
        yield Attention(severity="warning", text=text, link="#/credentials")
    if len(refused) > _MOST_CREDENTIALS:
        text = f"{len(refused) - _MOST_CREDENTIALS} more credentials are refused"
        yield Attention(severity="warning", text=text, link="#/credentials")


def _unserved(sight: Sight) -> Iterator[Attention]:
    """Without a valid credential nothing can be collected, though nothing has failed yet."""
    if sight.late_token is not None:
        text = f"{VARIABLE} is not in use yet: {sight.late_token}"
        yield Attention(severity="warning", text=text, link="#/credentials")
    elif sight.credentials is not None and not any(_may_call(each, sight.audience) for each in sight.credentials):
        text = f"There is no valid credential for {sight.audience}, so nothing can be collected: {HOW_TO_GET_ONE}"
        yield Attention(severity="info", text=text, link="#/credentials")


def _may_call(credential: Credential, audience: str) -> bool:
    return credential.state is State.VALID and credential.audience == audience


def _failing(latest: Sequence[FailedJob], now: datetime) -> Iterator[Attention]:
    """What goes wrong now, with its reason: an upstream that is away looks like this."""
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
