"""Runs and their jobs as text and tables."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from textwrap import wrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli.wording import clock, counted, listed, number, span, subject_name
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState
from tidegate.engine.reports.progress import Failure, JobView, KindProgress, ResourceProgress
from tidegate.engine.runs import Run
from tidegate.engine.source_plugin import ResourceUnit, kind_names

WITHHELD = "withheld"
"""Label of items that the upstream lists but does not show, such as blocked repositories."""
SKIPPED = "skipped"
"""Label of the number of items that could not be read."""
STATISTICS = "statistics"
"""Label of runs without statistics because their computation failed permanently."""
NO_WORKER = "no worker"
"""Added to the state of an active run that no process executes."""
_WIDTH = 11
_MOST_REASONS = 8
_STYLES = {RunState.COMPLETED: "green", RunState.FAILED: "red", RunState.CANCELED: "yellow"}


def labelled(word: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines of a section; the first one starts with the label."""
    for index, line in enumerate(lines):
        yield f"{word if index == 0 else '':{_WIDTH}}{line}"


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print labelled lines. Long lines are wrapped in a terminal and left as they are elsewhere."""
    for line in lines:
        for part in _folded(line, console.width) if console.is_terminal else [line]:
            console.print(part, markup=False, soft_wrap=True)


def _folded(line: str, width: int) -> list[str]:
    """Wrap a line between words. Words are not split, so that names and paths can be copied."""
    return wrap(
        line, max(width, 3 * _WIDTH), subsequent_indent=" " * _WIDTH, break_long_words=False, break_on_hyphens=False
    ) or [""]


def users_line(runs: Sequence[Run], took: str = "") -> str:
    """How many runs are complete, failed or canceled; `took` is the duration."""
    ends = Counter(run.status for run in runs)
    partly = sum(run.status is RunState.COMPLETED and run.failed_jobs > 0 for run in runs)
    what = subject_word(run.user_id for run in runs)
    parts = [f"{number(ends[RunState.COMPLETED])} of {counted(len(runs), what)} complete{took}"]
    parts += [f"{number(partly)} of them with failures"] if partly else []
    parts += [f"{number(ends[state])} {state}" for state in (RunState.FAILED, RunState.CANCELED) if ends[state]]
    return ", ".join(parts)


def state_of(run: Run, *, has_workers: bool | None, waiting: str | None = None) -> str:
    """The state of a run, with the reason if no process executes it."""
    if waiting is not None:
        return f"{run.status} ({waiting})"
    idle = has_workers is False and run.status in ACTIVE_RUNS
    return f"{run.status} ({NO_WORKER})" if idle else str(run.status)


def subject_word(ids: Iterable[str]) -> str:
    """`user` if all subjects are users, otherwise `subject`."""
    return "subject" if any(":" in each for each in ids) else "user"


def resource_counts(unit: ResourceUnit | None, found: Iterable[ResourceProgress]) -> list[str]:
    """How many repositories, or what else the source counts, have no unfinished jobs; empty if there are none."""
    counts = list(found)
    total = sum(each.total for each in counts)
    if unit is None or not total:
        return []
    return [f"{number(sum(each.ended for each in counts))} of {counted(total, unit.one, unit.many)}"]


def run_table(
    runs: Sequence[Run],
    now: datetime,
    *,
    has_workers: bool | None = None,
    waiting: Mapping[int, str] | None = None,
) -> Table:
    """A table with one row per run."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "user", "state"):
        table.add_column(name, overflow="fold")
    ends = [name for name in ("failed", "canceled") if any(getattr(run, f"{name}_jobs") for run in runs)]
    for name in ("pages", *ends, "documents", "calls"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("started", overflow="fold")
    for run in runs:
        table.add_row(
            str(run.id),
            Text(subject_name(run.user_id, run.login)),
            Text(
                state_of(run, has_workers=has_workers, waiting=(waiting or {}).get(run.id)),
                style=_STYLES.get(run.status, ""),
            ),
            f"{number(run.succeeded_jobs)}/{number(run.total_jobs)}",
            *(number(getattr(run, f"{name}_jobs")) for name in ends),
            number(run.documents),
            number(run.calls),
            clock(run.created_at, now),
        )
    return table


def run_lines(
    run: Run,
    kinds: Sequence[KindProgress],
    failures: Sequence[Failure],
    unavailable: Sequence[Failure],
    now: datetime,
    *,
    retrying: Sequence[Failure] = (),
    without_statistics: str | None = None,
    has_workers: bool | None = None,
    waiting: str | None = None,
) -> Iterator[str]:
    """The details of one run."""
    over = (
        "" if run.completed_at is None else f", ended after {span((run.completed_at - run.created_at).total_seconds())}"
    )
    yield from labelled(
        "run",
        [
            f"{run.id} of {subject_name(run.user_id, run.login)}: "
            f"{state_of(run, has_workers=has_workers, waiting=waiting)}"
        ],
    )
    yield from labelled("started", [f"{clock(run.created_at, now)}, {run.triggered_by}{over}"])
    options = ", ".join(f"{name} {_option_text(run.options[name])}".strip() for name in sorted(run.options))
    yield from labelled("options", [options or "none"])
    yield from labelled("pages", [_pages(run), *(_kind(one) for one in kinds)])
    yield from labelled("documents", [number(run.documents)])
    yield from labelled(SKIPPED, skipped_lines(run.skipped_items))
    yield from labelled("calls", [calls_line(run.calls, run.unchanged_calls)])
    yield from labelled(WITHHELD, [*failure_lines(unavailable, sum(one.unavailable for one in kinds))])
    yield from labelled("failures", [*failure_lines(failures, run.failed_jobs)])
    yield from labelled("retrying", [*failure_lines(retrying, sum(one.retrying for one in kinds))])
    stuck = {} if without_statistics is None else {run.id: without_statistics}
    yield from labelled(STATISTICS, [*statistics_lines(stuck)])


def calls_line(calls: int, unchanged: int) -> str:
    """The number of calls, and how many of them were free."""
    free = f", {number(unchanged)} of them free: not modified (304)" if unchanged else ""
    return f"{number(calls)}{free}"


def skipped_lines(skipped: int) -> list[str]:
    """The number of items that could not be read; empty if there are none."""
    return (
        [f"{counted(skipped, 'item')} could not be read; the other items of their pages are stored"] if skipped else []
    )


def failure_lines(failures: Sequence[Failure], failed_jobs: int) -> Iterator[str]:
    """One line per reason, the most frequent first; `failures` contains the first of all `failed_jobs`."""
    groups: defaultdict[str, list[Failure]] = defaultdict(list)
    for failure in failures:
        groups[failure.reason].append(failure)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    for reason, alike in ordered[:_MOST_REASONS]:
        what = ", ".join(dict.fromkeys(kind_names().get(failure.kind, failure.kind) for failure in alike))
        resources = listed(dict.fromkeys(resource_name(failure.kind, failure.resource) for failure in alike))
        yield f"{number(len(alike))} x {reason}: {what} of {resources}"
    if len(ordered) > _MOST_REASONS:
        yield f"… and {counted(len(ordered) - _MOST_REASONS, 'other reason')}"
    if failed_jobs > len(failures):
        yield f"… and {counted(failed_jobs - len(failures), 'more job')}"


def statistics_lines(failed_completions: Mapping[int, str]) -> Iterator[str]:
    """Runs without statistics, with the error and the command that retries them."""
    for run_id, reason in [*failed_completions.items()][:_MOST_REASONS]:
        yield f"of run {run_id} failed: {reason}; retry with tidegate runs retry {run_id}"
    if len(failed_completions) > _MOST_REASONS:
        yield f"… and {counted(len(failed_completions) - _MOST_REASONS, 'other run')}"


def job_table(jobs: Sequence[JobView], now: datetime) -> Table:
    """A table with one row per job."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "kind", "resource", "page", "state", "attempts", "time", "error"):
        table.add_column(name, overflow="fold")
    for job in jobs:
        moment = job.completed_at or job.not_before or job.started_at or job.created_at
        table.add_row(
            str(job.id),
            kind_names().get(job.kind, job.kind),
            Text(job.resource),
            Text(job.page),
            job.status,
            f"{job.attempts}/{job.max_attempts}",
            clock(moment, now),
            Text(job.last_error or ""),
        )
    return table


def resource_name(kind: str, resource: str) -> str:
    """The resource without the prefix of GitHub resources. Crawl resources start with a host and are left as is."""
    return resource.partition(":")[2] if kind in kind_names() else resource


def _kind(one: KindProgress) -> str:
    states = {
        "waiting": one.waiting,
        "running": one.running,
        "to be retried": one.retrying,
        "unavailable": one.unavailable,
        "failed": one.failed,
        "canceled": one.canceled,
    }
    rest = ", ".join(f"{number(count)} {state}" for state, count in states.items() if count)
    done = f"{kind_names().get(one.kind, one.kind)} {number(one.succeeded + one.unavailable)}/{number(one.total)}"
    return f"{done}: {rest}" if rest else done


def _pages(run: Run) -> str:
    """How many jobs succeeded, failed or were canceled."""
    others = {"failed": run.failed_jobs, "canceled": run.canceled_jobs}
    rest = "".join(f", {number(count)} {state}" for state, count in others.items() if count)
    return f"{number(run.succeeded_jobs)} of {number(run.total_jobs)}{rest}"


def _option_text(value: object) -> str:
    """The value of an option as on the command line; empty for a flag."""
    if isinstance(value, list | tuple):
        kinds = [str(kind) for kind in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return ", ".join(name for kind, name in kind_names().items() if kind in kinds) or ", ".join(kinds)
    return "" if value is True else str(value)
