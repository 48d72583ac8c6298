"""What came of it, in words and as an exit code."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.cli.views import NOW, kind, permits, run, view
from tidegate.engine.commands.collecting import CollectOutcome
from tidegate.engine.commands.plan import UserHistory, assemble_plan
from tidegate.engine.commands.summary import Summary, summarise
from tidegate.engine.commands.summary import summary_lines as lines_for
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.history import RunAverages
from tidegate.engine.reports.progress import Failure, ResourceProgress
from tidegate.engine.runs import Run
from tidegate.settings import Settings
from tidegate.systems.github.plugin import GithubPlugin

PLAN = assemble_plan(
    [], UserHistory(active={}, last={}, marks={}, typical=RunAverages(users=0, calls=0)), [permits()], None, NOW
)
DONE = run(status=RunState.COMPLETED, succeeded_jobs=10, calls=10, unchanged_calls=7)


def summary(*runs: Run, was_interrupted: bool = False, failures: Any = (), **documents: int) -> Summary:
    outcome = CollectOutcome(plan=PLAN, view=view(*runs), seconds=12.3, was_interrupted=was_interrupted)
    return summarise(outcome, documents, failures, "sqlite:////data/tidegate.db")


def summary_lines(told: Summary) -> Iterator[str]:
    return lines_for(told, GithubPlugin(Settings()))


def test_the_exit_code_distinguishes_complete_failed_and_interrupted():
    failed = run(2, status=RunState.COMPLETED, succeeded_jobs=9, failed_jobs=1)
    assert summary(DONE).exit_code == 0
    assert summary(DONE, was_interrupted=True).exit_code == 0, "it was complete all the same"
    assert summary(DONE, failed).exit_code == 1
    assert summary(run(status=RunState.CANCELED)).exit_code == 1
    assert summary(run(status=RunState.FAILED)).exit_code == 1
    assert summary(DONE, run(2), was_interrupted=True).exit_code == 130


def test_runs_with_failed_jobs_are_ended_but_not_complete():
    told = summary(DONE, run(2, status=RunState.COMPLETED, succeeded_jobs=9, failed_jobs=1))

    assert (told.over, told.complete, told.failed_jobs) == (True, False, 1)


def test_the_summary_has_a_few_lines():
    assert list(summary_lines(summary(DONE, issue=1_200, commit=0, event=3))) == [
        "users      1 of 1 user complete in 12 s",
        "           octocat  run 1 completed: 10 of 10 pages, 321 documents",
        "documents  issue 1,200, event 3",
        "calls      10, 7 of them free: not modified (304)",
        "data       /data/tidegate.db (SQLite)",
        "next       tidegate stats octocat",
        "           tidegate export --format parquet --output DIR",
    ]


def test_the_summary_counts_repositories_of_each_subject():
    plan = msgspec.structs.replace(PLAN, unit=GithubPlugin.unit)
    shown = view(DONE, resources={DONE.id: ResourceProgress(total=8, ended=8)})
    outcome = CollectOutcome(plan=plan, view=shown, seconds=12.3, was_interrupted=False)
    lines = list(summary_lines(summarise(outcome, {}, (), "sqlite:////data/tidegate.db")))
    assert lines[1].endswith("run 1 completed: 8 of 8 repositories, 10 of 10 pages, 321 documents")


def test_an_export_is_recommended_in_a_format_that_is_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert list(summary_lines(summary(DONE)))[-1].strip() == "tidegate export --format csv --output DIR"


def test_unreadable_items_are_counted_and_are_not_failures():
    skipped = summary(DONE, run(2, status=RunState.COMPLETED, skipped_items=3), issue=1)

    assert (skipped.exit_code, skipped.skipped_items) == (0, 3)
    assert "skipped    3 items could not be read; the other items of their pages are stored" in summary_lines(skipped)


def test_failures_are_grouped_by_their_reason():
    failed = run(status=RunState.COMPLETED, succeeded_jobs=5, failed_jobs=205)
    alike = [
        Failure(run_id=1, job_id=n, kind=kind, resource=f"repo:octocat/{n // 2}", reason="451: taken down")
        for n, kind in enumerate(["REPO_ISSUES", "REPO_COMMITS"] * 4)
    ]
    other = Failure(run_id=1, job_id=99, kind="USER_EVENTS", resource="user:octocat", reason="502: oh")
    lines = list(summary_lines(summary(failed, failures=[other, *alike])))

    assert "failures   8 x 451: taken down: issues, commits of octocat/0, octocat/1, octocat/2 and 1 more" in lines
    assert "           1 x 502: oh: events of octocat" in lines
    assert "           … and 196 more jobs" in lines
    assert "next       tidegate runs retry 1: retries the failed jobs" in lines


def test_withheld_items_are_reported_and_are_not_failures():
    closed = Failure(run_id=1, job_id=7, kind="REPO_ISSUES", resource="repo:octocat/a", reason="451: taken down")
    outcome = CollectOutcome(
        plan=PLAN, view=view(DONE, kinds={1: [kind(unavailable=3)]}), seconds=12.3, was_interrupted=False
    )
    told = summarise(outcome, {}, [], "sqlite:////data/tidegate.db", unavailable=[closed])

    assert (told.exit_code, told.unavailable_jobs, told.unavailable) == (0, 3, [closed])
    lines = list(summary_lines(told))
    assert "withheld   1 x 451: taken down: issues of octocat/a" in lines
    assert "           … and 2 more jobs" in lines
    assert not any("retry" in line for line in lines)


def test_of_many_users_only_those_with_problems_are_named():
    troubled = [run(n, f"sad-{n}", RunState.COMPLETED, failed_jobs=1) for n in range(13)]
    well = [run(100 + n, f"glad-{n}", RunState.COMPLETED) for n in range(987)]
    lines = list(summary_lines(summary(*well, *troubled)))

    assert lines[0] == "users      1,000 of 1,000 users complete in 12 s, 13 of them with failures"
    assert sum("sad-" in line for line in lines) == 10
    assert "           987 complete without a failure, and 3 more with failures" in lines


def test_an_incomplete_run_is_not_reported_as_complete():
    ended = [DONE, run(2, "sad", RunState.FAILED, failed_jobs=1), run(3, "off", RunState.CANCELED)]
    told = summary(*ended, run(4, "slow"))
    assert next(summary_lines(told)) == "users      1 of 4 users complete in 12 s, 1 failed, 1 canceled, 1 stopped"
    assert (told.over, told.complete) == (False, False)
    assert (summary(*ended).over, summary(*ended).complete, summary(DONE).complete) == (True, False, True)


def test_a_failed_run_suggests_its_retry_and_not_its_statistics():
    failed = run(status=RunState.FAILED, succeeded_jobs=1, failed_jobs=2, total_jobs=3)
    lines = list(summary_lines(summary(failed)))
    assert lines[0] == "users      0 of 1 user complete in 12 s, 1 failed"
    assert lines[-1] == "next       tidegate runs retry 1: retries the failed jobs"


def test_an_interrupted_collection_prints_how_to_continue():
    lines = list(summary_lines(summary(run(), was_interrupted=True)))
    assert "           octocat  run 1 stopped: 4 of 10 pages, 321 documents" in lines
    assert lines[-1] == "next       stopped; run the same command again to continue"
