"""The result of a collection command as text and as JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tidegate.cli.wording import counted, listed, number, span
from tidegate.engine.commands.collecting import CollectOutcome
from tidegate.engine.commands.plan import CollectionPlan
from tidegate.engine.commands.run_text import (
    SKIPPED,
    STATISTICS,
    WITHHELD,
    calls_line,
    failure_lines,
    labelled,
    resource_counts,
    skipped_lines,
    statistics_lines,
    subject_word,
    users_line,
)
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState
from tidegate.engine.reports.progress import Failure, ResourceProgress
from tidegate.engine.runs import Run
from tidegate.engine.source_plugin import SourcePlugin

_MOST_USERS = 10
_FILE = "sqlite:///"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a collection command."""

    over: bool
    """Whether every run has ended."""
    complete: bool
    """Whether every run is completed without failed jobs."""
    interrupted: bool
    seconds: float
    calls: int
    unchanged_calls: int
    documents: Mapping[str, int]
    """Stored documents of these users by kind."""
    skipped_items: int
    """List items that could not be read; `runs show N --jobs succeeded` shows the reasons."""
    runs: list[Run]
    resources: Mapping[int, ResourceProgress]
    """Repositories, or what else the source counts, by run id."""
    failed_jobs: int
    failures: list[Failure]
    """The first failed jobs with their errors."""
    unavailable_jobs: int
    """Jobs for items that the upstream withholds, such as a blocked repository. They are not failures."""
    unavailable: list[Failure]
    """The first withheld items with their reasons."""
    without_statistics: Mapping[int, str]
    """Runs without statistics, with the error. A retry of the run computes them again."""
    missing_subjects: list[str]
    """Subjects that do not exist upstream; a retry would not help."""
    data: str
    plan: CollectionPlan

    @property
    def exit_code(self) -> int:
        """0: all runs are complete; 1: something failed; 130: interrupted."""
        if not self.over and self.interrupted:
            return 130
        return 0 if self.complete and not self.without_statistics else 1


def summarise(
    outcome: CollectOutcome,
    documents: Mapping[str, int],
    failures: Sequence[Failure],
    data: str,
    *,
    unavailable: Sequence[Failure] = (),
    is_missing: Callable[[Failure], bool] = lambda _: False,
) -> Summary:
    """Summarize runs; `is_missing` returns whether a failure means that the subject of a run does not exist."""
    runs = list(outcome.view.runs)
    missing = {failure.run_id for failure in failures if is_missing(failure)}
    return Summary(
        over=outcome.view.is_over,
        complete=all(run.status is RunState.COMPLETED and not run.failed_jobs for run in runs),
        interrupted=outcome.was_interrupted,
        seconds=round(outcome.seconds, 3),
        calls=sum(run.calls for run in runs),
        unchanged_calls=sum(run.unchanged_calls for run in runs),
        documents=documents,
        skipped_items=sum(run.skipped_items for run in runs),
        runs=runs,
        resources=outcome.view.resources,
        failed_jobs=sum(run.failed_jobs for run in runs),
        failures=list(failures),
        unavailable_jobs=sum(kind.unavailable for kinds in outcome.view.kinds.values() for kind in kinds),
        unavailable=list(unavailable),
        without_statistics=outcome.view.failed_completions,
        missing_subjects=[run.login for run in runs if run.id in missing],
        data=data,
        plan=outcome.plan,
    )


def summary_lines(summary: Summary, plugin: SourcePlugin) -> Iterator[str]:
    """The result, where it is stored, and what to do next."""
    yield from result_lines(summary)
    yield from labelled("data", [_place(summary.data)])
    yield from labelled("next", [*_next(summary, plugin)])


def result_lines(summary: Summary) -> Iterator[str]:
    """The lines of the result, with a label per section."""
    yield from labelled(f"{subject_word(run.user_id for run in summary.runs)}s", [*_users(summary)])
    documents = ", ".join(f"{kind} {number(count)}" for kind, count in summary.documents.items() if count)
    yield from labelled("documents", [documents] if documents else [])
    yield from labelled(SKIPPED, skipped_lines(summary.skipped_items))
    yield from labelled("calls", [calls_line(summary.calls, summary.unchanged_calls)])
    yield from labelled(WITHHELD, [*failure_lines(summary.unavailable, summary.unavailable_jobs)])
    yield from labelled("failures", [*failure_lines(summary.failures, summary.failed_jobs)])
    yield from labelled(STATISTICS, [*statistics_lines(summary.without_statistics)])


def _users(summary: Summary) -> Iterator[str]:
    stopped = sum(_is_stopped(summary, run) for run in summary.runs)
    yield users_line(summary.runs, f" in {span(summary.seconds)}") + (f", {number(stopped)} stopped" if stopped else "")
    incomplete = [run for run in summary.runs if run.status is not RunState.COMPLETED or run.failed_jobs]
    shown = summary.runs if len(summary.runs) <= _MOST_USERS else incomplete[:_MOST_USERS]
    width = max((len(run.login) for run in shown), default=0)
    for run in shown:
        failed = f", {number(run.failed_jobs)} failed" if run.failed_jobs else ""
        found = [summary.resources[run.id]] if run.id in summary.resources else []
        several = "".join(f"{each}, " for each in resource_counts(summary.plan.unit, found))
        pages = f"{several}{number(run.succeeded_jobs)} of {counted(run.total_jobs, 'page')}"
        state = "stopped" if _is_stopped(summary, run) else run.status
        yield f"{run.login:{width}}  run {run.id} {state}: {pages}, {counted(run.documents, 'document')}{failed}"
    if len(shown) < len(summary.runs):
        well = len(summary.runs) - len(incomplete)
        others = (
            f", and {number(len(incomplete) - len(shown))} more with failures" if len(incomplete) > len(shown) else ""
        )
        yield f"{number(well)} complete without a failure{others}"


def _is_stopped(summary: Summary, run: Run) -> bool:
    """Whether running the same command again continues this run."""
    return run.status in ACTIVE_RUNS and run.id not in summary.without_statistics


def _next(summary: Summary, plugin: SourcePlugin) -> Iterator[str]:
    if any(_is_stopped(summary, run) for run in summary.runs):
        yield "stopped; run the same command again to continue"
        return
    missing = set(summary.missing_subjects)
    if missing:
        yield f"{listed(summary.missing_subjects)}: not found upstream; check the spelling"
    failed = [run for run in summary.runs if run.failed_jobs and run.login not in missing]
    if failed:
        also = f" (and {listed(str(run.id) for run in failed[1:])})" if failed[1:] else ""
        yield f"tidegate runs retry {failed[0].id}{also}: retries the failed jobs"
    complete = [run.login for run in summary.runs if run.status is RunState.COMPLETED]
    if complete:
        yield from plugin.next_commands(complete[0])


def _place(data: str) -> str:
    """The URL of the database; a SQLite file as a path that can be copied."""
    return f"{data.removeprefix(_FILE)} (SQLite)" if data.startswith(f"{_FILE}/") else data
