"""`tidegate crawl tasks`: the tasks of a run, and their executions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.wording import clock
from tidegate.engine.lifecycle import JobState
from tidegate.systems.crawl.commands.opening import LIMIT, LINES, look, print_json

if TYPE_CHECKING:
    from rich.text import Text

    from tidegate.engine.executions import Execution
    from tidegate.engine.reports.progress import JobView
    from tidegate.storage.sql import Transaction


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its executions."""

    task: JobView
    executions: list[Execution]
    """All executions, oldest first."""


def tasks(
    run: int = typer.Argument(help="Number of a run, as `tidegate runs list` shows it.", min=1),
    *,
    state: list[str] = typer.Option(None, help=f"Only tasks in this state: {', '.join(JobState)}. May be repeated."),
    after: int = typer.Option(0, min=0, help="Only tasks with a greater number."),
    limit: int = LIMIT,
    as_json: bool = LINES,
) -> None:
    """List the tasks of a run, each with its executions and their results."""
    from rich.table import Table

    from tidegate.cli.tables import print_table
    from tidegate.engine.commands.runs import job_states

    states = job_states(state or [])
    found = look(lambda database: database.read(_tasks, run, states, after, limit))
    if as_json:
        for one in found:
            print_json(one)
        return
    if not found:
        typer.echo(f"Run {run} has no matching tasks." if after == 0 else f"Run {run} has no tasks after {after}.")
        return
    table, now = Table("task", "kind", "of", "state", "when", "executions", "why", box=None), datetime.now(UTC)
    table.pad_edge = False
    for one in found:
        table.add_row(*_cells(one, now))
    print_table(table)
    if len(found) == limit:
        typer.echo(f"More: tidegate crawl tasks {run} --after {found[-1].task.id}")


def _tasks(tx: Transaction, run: int, states: tuple[JobState, ...], after: int, limit: int) -> list[TaskReport]:
    from tidegate.engine import runs
    from tidegate.engine.executions import of_jobs
    from tidegate.engine.reports.progress import jobs_of

    runs.get(tx, run)  # raises `NotFound` for an unknown run
    found = jobs_of(tx, run, states=states, after=after, limit=limit)
    executions = of_jobs(tx, [job.id for job in found])
    return [TaskReport(task=job, executions=executions[job.id]) for job in found]


def _cells(one: TaskReport, now: datetime) -> list[str | Text]:
    from rich.text import Text

    from tidegate.engine.source import FIRST_PAGE

    job = one.task
    moment = job.completed_at or job.not_before or job.started_at or job.created_at
    worked = ", ".join(_told(each) for each in one.executions)
    kind = job.kind if job.page == FIRST_PAGE else f"{job.kind} {job.page}"
    return [
        str(job.id),
        Text(kind),
        Text(job.resource),
        job.status.value,
        clock(moment, now),
        Text(worked),
        Text(job.last_error or ""),
    ]


def _told(execution: Execution) -> str:
    """The identity of an execution, its outcome, and the reason if it did not end the task."""
    from tidegate.systems.crawl.identity_records import credential_of

    why = f" ({execution.reason})" if execution.reason else ""
    return f"{execution.credential.removeprefix(credential_of(''))} {execution.outcome or 'in progress'}{why}"
