"""`tidegate crawl`: crawl a marketplace, once or on a schedule, and show its tasks and hosts.

Registers the commands of schedules, identities and results too.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run_traced
from tidegate.cli.wording import clock, exact_span
from tidegate.engine.lifecycle import JobState
from tidegate.systems.crawl.commands import identities, results, schedules
from tidegate.systems.crawl.commands.opening import (
    IGNORE_ROBOTS,
    JSON,
    KEYWORDS,
    LIMIT,
    LINES,
    NAME,
    PAGES,
    SITE,
    URL,
    ask,
    options_of,
    print_json,
    query,
)

if TYPE_CHECKING:
    from rich.text import Text

    from tidegate.engine.executions import Execution
    from tidegate.engine.reports.progress import JobView
    from tidegate.storage.sql import Transaction
    from tidegate.systems.crawl.hosts import Host


def hosts(
    *,
    forget: str | None = typer.Option(None, help="Read robots.txt of this host again before the next call."),
    as_json: bool = JSON,
) -> None:
    """Show the hosts of crawls: their robots.txt rules, their pauses and the reasons."""
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table
    from tidegate.systems.crawl import hosts as records

    if forget is not None:
        host = forget
        ask(lambda crawl: crawl.identities.hosts.forget(host))
    found = [one for one in query(lambda database: database.read(records.everything)) if forget in (None, one.host)]
    if as_json:
        print_json({"hosts": found})
    elif found:
        table, now = Table("host", "robots.txt", "Crawl-delay", "rests", box=None, pad_edge=False), datetime.now(UTC)
        for one in found:
            delay = exact_span(one.crawl_delay_ms / 1000) if one.crawl_delay_ms else "none"
            table.add_row(escape(one.host), _robots(one, now), delay, escape(_rest(one, now)))
        print_table(table)
    else:
        typer.echo("There are no hosts yet. Start a crawl: tidegate crawl run NAME --url URL -k WORD")


def _robots(host: Host, now: datetime) -> str:
    return host.robots_state if host.read_at is None else f"{host.robots_state}, {clock(host.read_at, now)}"


def _rest(host: Host, now: datetime) -> str:
    if host.rests_until is None or host.rests_until <= now:
        return "no"
    return f"until {clock(host.rests_until, now)}: {host.reason}"


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
    found = query(lambda database: database.read(_tasks, run, states, after, limit))
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
    """Return the cells of a task in the table."""
    from rich.text import Text

    from tidegate.engine.source import FIRST_PAGE

    job = one.task
    moment = job.completed_at or job.not_before or job.started_at or job.created_at
    worked = ", ".join(_execution_text(each) for each in one.executions)
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


def _execution_text(execution: Execution) -> str:
    """The identity of an execution, its outcome, and the reason if it did not end the task."""
    from tidegate.systems.crawl.identity_records import credential_of

    why = f" ({execution.reason})" if execution.reason else ""
    return f"{execution.credential.removeprefix(credential_of(''))} {execution.outcome or 'in progress'}{why}"


app = typer.Typer(no_args_is_help=True, help="Crawl marketplaces: schedules, identities, products, dead letters.")
app.add_typer(schedules.app, name="schedules")
app.add_typer(identities.app, name="identities")
app.command("tasks")(tasks)
app.command("products")(results.products)
app.command("product")(results.product)
app.command("forget")(results.forget)
app.command("raws")(results.raws)
app.command("raw")(results.raw)
app.command("dead")(results.dead)
app.command("replay")(results.replay)
app.command("hosts")(hosts)

_INTERRUPTED = "Interrupted before the crawl started; the same command continues."


@app.command()
def run(
    name: str = NAME,
    *,
    url: str = URL,
    keywords: list[str] = KEYWORDS,
    site: str = SITE,
    pages: int = PAGES,
    ignore_robots: bool = IGNORE_ROBOTS,
    no_progress: bool = typer.Option(False, "--no-progress", help="Do not show progress."),
    as_json: bool = JSON,
) -> None:
    """Crawl until every page is read and every product is assembled. A repeated command continues, or finds changes.

    robots.txt, Crawl-delay and Retry-After are obeyed, and there is a pause between two calls to a host
    (crawl.delay). Exit code 0: everything was read; 1: something failed, or nothing could be read; 130: interrupted.
    Ctrl-C shuts down gracefully; a second Ctrl-C stops at once.
    """
    from rich.console import Console

    from tidegate.engine.commands.run_text import print_lines
    from tidegate.systems.crawl.commands.crawling import crawl_to_the_end, summary_lines

    options = options_of(name, url, keywords, site, pages, ignore_robots=ignore_robots)
    try:
        settings = load_settings()
        work = crawl_to_the_end(settings, name, options, quiet=no_progress or as_json)
        summary = run_traced("crawl run", settings, work)
    except KeyboardInterrupt:
        typer.echo(_INTERRUPTED, err=True)
        raise
    if as_json:
        print_json(summary)
    else:
        print_lines(Console(highlight=False), summary_lines(summary))
    raise typer.Exit(summary.exit_code)
