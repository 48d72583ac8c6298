"""Reports for operators as tables and text."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli.wording import clock, counted, number, span
from tidegate.engine.api.quotas import WaitingPool, WaitingReport
from tidegate.engine.api.run_details import Wait
from tidegate.engine.reports.kinds import FailingReport, ReportBasis, RetriesReport, TimesReport
from tidegate.engine.reports.states import JobsReport, RunsReport, SlowReport
from tidegate.engine.source_plugin import kind_names

TITLES = {
    "runs": "Runs by state",
    "jobs": "Jobs of active runs",
    "failing": "Failed jobs by kind",
    "slow": "Slow jobs",
    "waiting": "Waiting jobs",
    "times": "Processing times",
    "retries": "Retried jobs",
}
_REASONS = {
    "blocked": "blocked by the upstream",
    "exhausted": "quota exhausted",
    "minute": "limit of calls per minute reached",
    "concurrency": "limit of concurrent calls reached",
    "probing": "waits for the first call, which reports the quota",
    "retired": "rejected by the upstream",
    "no_credential": "no credential; add one with tidegate credentials add",
}


def show(console: Console, report: Any, now: datetime) -> None:
    """Print a report as text."""
    match report:
        case RunsReport():
            _show_runs(console, report, now)
        case JobsReport():
            _show_jobs(console, report)
        case FailingReport():
            _show_failing(console, report, now)
        case SlowReport():
            _show_slow(console, report, now)
        case WaitingReport():
            _show_waiting(console, report, now)
        case TimesReport():
            _show_times(console, report, now)
        case RetriesReport():
            _show_retries(console, report, now)
        case _:
            raise AssertionError(f"unknown report: {type(report).__name__}")


def _show_runs(console: Console, report: RunsReport, now: datetime) -> None:
    if not report.states:
        _print_line(console, "No runs found.")
        return
    rows = [[one.state, number(one.runs), str(one.first), str(one.last)] for one in report.states]
    _print(console, ["state"], ["runs", "first", "last"], rows)
    if report.since is not None:
        _print_line(console, f"Ended runs are included if they ended since {clock(report.since, now)}.")


def _show_jobs(console: Console, report: JobsReport) -> None:
    if not report.states:
        _print_line(console, "No active runs." if not report.runs else f"{counted(report.runs, 'run')} without jobs.")
        return
    rows = [[one.source, one.state, number(one.jobs)] for one in report.states]
    _print(console, ["source", "state"], ["jobs"], rows)
    _print_line(console, f"Of {counted(report.runs, 'run')}.")


def _show_failing(console: Console, report: FailingReport, now: datetime) -> None:
    if report.kinds:
        rows = [
            [one.source, _kind(one.kind), number(one.failed), f"{one.share:.1%}", number(one.jobs), number(one.runs)]
            for one in report.kinds
        ]
        reasons = [f"job {one.last_job}: {one.last_error or 'no error message'}" for one in report.kinds]
        _print(console, ["source", "kind"], ["failed", "share", "of jobs", "in runs"], rows, last=("newest", reasons))
    _print_line(console, f"{'' if report.kinds else 'No job failed. '}{_looked_at(report.looked_at, now)}")


def _show_slow(console: Console, report: SlowReport, now: datetime) -> None:
    if report.jobs:
        rows = [
            [str(job.id), str(job.run_id), job.login, _kind(job.kind), _long(job.seconds), f"{job.attempts}"]
            for job in report.jobs
        ]
        resources = [f"{job.resource} since {clock(job.started_at, now)}" for job in report.jobs]
        _print(console, ["job", "run", "user", "kind"], ["running", "attempts"], rows, last=("resource", resources))
    _print_line(
        console,
        f"{number(report.too_long)} of {counted(report.running, 'running job')} "
        f"{'has' if report.too_long == 1 else 'have'} been running for longer than {_long(report.longer_than_s)}.",
    )


def _show_waiting(console: Console, report: WaitingReport, now: datetime) -> None:
    if not report.pools:
        _print_line(console, "No waiting jobs.")
        return
    rows = [[one.pool, number(one.runs), number(one.waiting), number(one.retrying)] for one in report.pools]
    whys = [_why(one, now) for one in report.pools]
    _print(console, ["pool"], ["runs", "waiting", "retrying"], rows, last=("reason", whys))


def _show_times(console: Console, report: TimesReport, now: datetime) -> None:
    if report.kinds:
        rows = [
            [one.source, _kind(one.kind), number(one.jobs), _long(one.p50_s), _long(one.p95_s), _long(one.max_s)]
            for one in report.kinds
        ]
        _print(console, ["source", "kind"], ["jobs", "p50", "p95", "max"], rows)
    _print_line(console, f"{'' if report.kinds else 'No job ended. '}{_looked_at(report.looked_at, now)}")


def _show_retries(console: Console, report: RetriesReport, now: datetime) -> None:
    if report.kinds:
        rows = [
            [one.source, _kind(one.kind), number(one.jobs), number(one.retried), number(one.retries), number(one.most)]
            for one in report.kinds
        ]
        _print(console, ["source", "kind"], ["jobs", "retried", "retries", "most attempts"], rows)
    _print_line(console, f"{'' if report.kinds else 'No job was attempted. '}{_looked_at(report.looked_at, now)}")


def _why(one: WaitingPool, now: datetime) -> str:
    """Why the jobs of a pool wait: from the gate, or from the stored allowances if the gate is unavailable."""
    again = f"next retry {clock(one.next_retry_at, now)}" if one.next_retry_at is not None else ""
    if one.waits is not None:
        reasons = [_wait(each, now) for each in one.waits]
        if one.waiting and not any((one.buckets or {}).values()):
            reasons = ["waiting for a worker, not for a quota"]
        return "; ".join([*reasons, *([again] if again else [])]) or "can continue"
    rests = [
        f"{each.credential} ({each.bucket}) blocked until {clock(each.blocked_until, now)}"
        if each.blocked_until is not None
        else f"{each.credential} ({each.bucket}) had {number(each.remaining or 0)} left"
        for each in one.rests
    ]
    return "; ".join([*rests, *([again] if again else []), "Valkey is unavailable"])


def _wait(one: Wait, now: datetime) -> str:
    until = f", until {clock(one.opens_at, now)}" if one.opens_at is not None else ""
    label = "" if one.credential is None else f"{one.credential} ({one.bucket}): "
    return f"{label}{_REASONS.get(one.reason, one.reason)}{until}"


def _looked_at(seen: ReportBasis, now: datetime) -> str:
    evaluated = f"Of {counted(seen.jobs, 'job')} of {counted(seen.runs, 'run')}: active, or ended since"
    more = "" if seen.is_whole else "; more were not evaluated (--most-jobs)"
    return f"{evaluated} {clock(seen.since, now)}{more}."


def _print(
    console: Console,
    words: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    last: tuple[str, Sequence[str]] | None = None,
) -> None:
    """Print a table with columns of words, columns of numbers and an optional wide column at the end."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in words:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", overflow="fold")
    if last is not None:
        table.add_column(last[0], overflow="fold")
    for index, row in enumerate(rows):
        table.add_row(*(Text(cell) for cell in row), *([Text(last[1][index])] if last is not None else []))
    console.print(table)


def _print_line(console: Console, words: str) -> None:
    console.print(words, markup=False, soft_wrap=True)


def _kind(kind: str) -> str:
    return kind_names().get(kind, kind)


def _long(seconds: float) -> str:
    """A duration; below one second in milliseconds."""
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else span(seconds)
