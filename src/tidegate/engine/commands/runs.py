"""`tidegate runs`: list, show, cancel and retry runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import counted, subject_name
from tidegate.core.errors import InvalidArgument, Unavailable, ValkeyUnavailable
from tidegate.engine.lifecycle import ACTIVE_RUNS, JobState, RunState

if TYPE_CHECKING:
    from tidegate.engine.reports.progress import Failure, JobView, KindProgress
    from tidegate.engine.reports.run_search import RunQuery
    from tidegate.engine.runs import Run
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database, Transaction
    from tidegate.system import Context

app = typer.Typer(no_args_is_help=True, help="List, show, cancel and retry runs.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")
_RUN = typer.Argument(help="Id of a run, as printed by `list`.", min=1)
_RUNS = typer.Argument(help="Ids of runs, as printed by `list`.", min=1)
_ACTIVE = "active"
_STATES = (_ACTIVE, *RunState)
_NO_WORKERS = "No process executes active runs. Start one: tidegate up, or {again}"
_GATE_UNAVAILABLE = "; Valkey is unavailable, so its waiting jobs are dropped when they are dispatched, without a call"


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its progress and its failures."""

    run: Run
    kinds: list[KindProgress]
    failures: list[Failure]
    unavailable: list[Failure]
    """Jobs for items that the upstream withholds, with the reason. They are not failures."""
    retrying: list[Failure]
    """Jobs that will be retried, with the error of the last attempt."""
    without_statistics: str | None = None
    """Why its statistics failed permanently. A retry of the run computes them again."""
    has_workers: bool | None = None
    """Whether a process executes its jobs; null if the run has ended, or if it is unknown."""
    waiting: str | None = None
    """Why it does not progress if no process knows its source."""
    jobs: list[JobView] | None = None
    """The requested jobs."""


class Canceled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cancellation."""

    run: Run
    was_active: bool
    note: str = ""


@app.command("list")
def list_(
    *,
    login: str | None = typer.Option(None, help="Only runs of this subject."),
    source: str | None = typer.Option(None, help="Only runs of this source."),
    state: list[str] = typer.Option(None, help=f"Only runs in this state: {', '.join(_STATES)}. Can be repeated."),
    limit: int = typer.Option(20, min=1, max=10_000, help="Maximum number of runs."),
    search: str | None = typer.Option(
        None, help="Only runs with this text in the name or id of their subject, regardless of case."
    ),
    since: str | None = typer.Option(None, help="Only runs created since then: 24h, 7d, or a date or time (ISO 8601)."),
    until: str | None = typer.Option(None, help="Only runs created before then, in the same form."),
    before: int | None = typer.Option(None, min=1, help="Only runs older than the run with this id."),
    as_json: bool = _JSON,
) -> None:
    """List runs, newest first.

    --search examines all runs of the time range one after the other, until it has found enough of them.
    """
    from tidegate.cli.tables import table_console
    from tidegate.cli.wording import parse_since
    from tidegate.engine.commands.run_text import run_table
    from tidegate.engine.reports.run_search import RunQuery

    settings, now = load_settings(), _now()
    query = RunQuery(
        search=search,
        since=None if since is None else parse_since(since, now),
        until=None if until is None else parse_since(until, now, name="until"),
        login=None if login is None else _login(settings, source, login),
        source=source,
        states=_states(state or ()),
        before=before,
        limit=limit,
    )
    found, has_workers, waiting = run(_list(settings, query))
    if as_json:
        typer.echo(msgspec.json.encode({"runs": found, "has_workers": has_workers, "waiting": waiting}))
    elif found:
        table_console().print(run_table(found, _now(), has_workers=has_workers, waiting=waiting))
        if len(found) == limit:
            typer.echo(f"Older runs: tidegate runs list --before {found[-1].id}")
        if has_workers is False:
            typer.echo(_NO_WORKERS.format(again=_again(settings, [run for run in found if run.status in ACTIVE_RUNS])))
    else:
        typer.echo("No runs found. Start one: tidegate collect LOGIN")


@app.command()
def show(
    number: int = _RUN,
    *,
    jobs: list[str] = typer.Option(
        None, help=f"Also list jobs in this state: all, {', '.join(JobState)}. Can be repeated."
    ),
    after: int = typer.Option(0, min=0, help="List only jobs after this id."),
    limit: int = typer.Option(100, min=1, max=10_000, help="Maximum number of jobs."),
    as_json: bool = _JSON,
) -> None:
    """Show one run: its progress by kind, and its failures with their reasons."""
    from tidegate.cli.tables import table_console
    from tidegate.engine.commands.run_text import job_table, print_lines, run_lines

    states, settings = job_states(jobs) if jobs else None, load_settings()
    shown = run(_show(settings, number, states, after, limit))
    if as_json:
        typer.echo(msgspec.json.encode(shown))
        return
    console = table_console()
    lines = run_lines(
        shown.run,
        shown.kinds,
        shown.failures,
        shown.unavailable,
        _now(),
        retrying=shown.retrying,
        without_statistics=shown.without_statistics,
        has_workers=shown.has_workers,
        waiting=shown.waiting,
    )
    print_lines(console, lines)
    if shown.has_workers is False:
        typer.echo(_NO_WORKERS.format(again=_again(settings, [shown.run])))
    if shown.jobs is not None:
        console.print(job_table(shown.jobs, _now()) if shown.jobs else "No jobs found.")
        if len(shown.jobs) == limit:
            typer.echo(f"More: --after {shown.jobs[-1].id}")


@app.command()
def cancel(number: int = _RUN, *, as_json: bool = _JSON) -> None:
    """Cancel a run. Requests in progress end and their results are discarded; collected documents are kept."""
    canceled = run(cancel_run(load_settings(), number))
    if as_json:
        typer.echo(msgspec.json.encode(canceled))
    elif canceled.was_active:
        typer.echo(f"run {number} of {_subject_name(canceled.run)} is canceled{canceled.note}")
    else:
        typer.echo(f"run {number} of {_subject_name(canceled.run)} has already ended: {canceled.run.status}")


@app.command()
def retry(
    numbers: list[int] = _RUNS,
    *,
    job: int | None = typer.Option(None, min=1, help="Only this job, an id as printed by `show --jobs failed`."),
    as_json: bool = _JSON,
) -> None:
    """Retry the failed jobs of runs from their first attempt, and their statistics if they failed permanently.

    A worker process executes them. With --json, one line is printed per run.
    """
    if job is not None and len(numbers) > 1:
        raise InvalidArgument("job", job, "belongs to one run: give only that run")
    settings = load_settings()
    for retried in run(retry_runs(settings, list(dict.fromkeys(numbers)), job)):
        typer.echo(msgspec.json.encode(retried) if as_json else "\n".join(_retried_lines(settings, retried)))


class _Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a run that are executed again."""

    run: Run
    jobs: int
    statistics: bool


def _retried_lines(settings: Settings, retried: _Retried) -> Iterator[str]:
    number, again = retried.run.id, retried.jobs
    if again:
        yield f"{counted(again, 'failed job')} of run {number} will be retried"
    if retried.statistics:
        yield f"the statistics of run {number} will be computed again"
    if again or retried.statistics:
        yield f"A worker process executes this: tidegate up, or {_again(settings, [retried.run])}"
    else:
        yield f"run {number} has no failed jobs"


async def _list(settings: Settings, query: RunQuery) -> tuple[list[Run], bool | None, dict[int, str]]:
    from tidegate.connections import open_database

    async with open_database(settings) as database:
        found = await _find(database, query)
        return found, *await _workforce(settings, database, found)


async def _find(database: Database, query: RunQuery) -> list[Run]:
    """Read page by page, each in a transaction of its own, until there are enough runs or no more to examine."""
    from tidegate.engine.reports.run_search import find_runs

    page = await database.read(find_runs, query)
    found = page.runs
    while len(found) < query.limit and page.next_before is not None:
        rest = query._replace(before=page.next_before, limit=query.limit - len(found))
        page = await database.read(find_runs, rest)
        found += page.runs
    return found


async def _workforce(
    settings: Settings, database: Database, shown: Sequence[Run]
) -> tuple[bool | None, dict[int, str]]:
    """Whether processes execute the jobs of all active runs, and the runs of sources that no process knows."""
    active = [run for run in shown if run.status in ACTIVE_RUNS]
    if not active:
        return None, {}
    from tidegate.connections import build_context, open_valkey
    from tidegate.engine.cells import cell_context, why_waiting
    from tidegate.engine.source_plugin import system_of
    from tidegate.runtime.workforce import has_workers

    try:
        async with open_valkey(settings) as valkey:
            context = build_context(settings, valkey, database)
            installed = {run.source for run in active if system_of(run.source) is not None}
            cells = [cell_context(context, source) for source in sorted(installed)]
            works = [await has_workers(cell.membership, [cell.jobs]) for cell in cells]
            waiting = await why_waiting(context, [run for run in active if run.source not in installed])
            return all(works) if works else None, waiting
    except Unavailable:
        return None, {}


async def _show(
    settings: Settings, number: int, states: Sequence[JobState] | None, after: int, limit: int
) -> RunReport:
    from tidegate.connections import open_database
    from tidegate.engine import runs as records
    from tidegate.engine.completion import failed_completions
    from tidegate.engine.reports.progress import failures_of, jobs_of, kinds_of, retrying_of, unavailable_of

    async with open_database(settings) as database:
        listed = partial(jobs_of, states=states or (), after=after, limit=limit)
        found = await database.read(records.get, number)
        works, waiting = await _workforce(settings, database, [found])
        return RunReport(
            run=found,
            has_workers=works,
            waiting=waiting.get(number),
            kinds=await database.read(kinds_of, [number]),
            failures=await database.read(failures_of, [number]),
            unavailable=await database.read(unavailable_of, [number]),
            retrying=await database.read(retrying_of, [number]),
            without_statistics=(await database.read(failed_completions, [number])).get(number),
            jobs=None if states is None else await database.read(listed, number),
        )


async def cancel_run(settings: Settings, number: int) -> Canceled:
    """Cancel a run in SQL. If the gate is unavailable, its jobs are dropped when they are dispatched."""
    from tidegate.connections import open_context, open_database
    from tidegate.engine import runs as records
    from tidegate.engine.cells import orchestrator_of

    try:
        async with open_context(settings) as parts:
            before = await parts.database.read(records.get, number)
            await orchestrator_of(parts, before.source).cancel(number)
            return await _canceled(parts.database, before)
    except ValkeyUnavailable:
        async with open_database(settings) as database:
            before = await database.read(records.get, number)
            await database.transaction(records.cancel, number)
            return msgspec.structs.replace(await _canceled(database, before), note=_GATE_UNAVAILABLE)


async def _canceled(database: Database, before: Run) -> Canceled:
    from tidegate.engine import runs as records

    run_ = await database.read(records.get, before.id)
    return Canceled(run=run_, was_active=before.status in ACTIVE_RUNS and run_.status is RunState.CANCELED)


async def retry_runs(settings: Settings, numbers: Sequence[int], job: int | None) -> list[_Retried]:
    """Retry runs; none of them if one does not exist."""
    from tidegate.connections import open_context
    from tidegate.engine import runs as records

    async with open_context(settings) as parts:
        found = [await parts.database.read(records.get, number) for number in numbers]
        if job is not None:
            await parts.database.read(_require_job, numbers[0], job)
        return [await _retry_one(parts, each, job) for each in found]


async def _retry_one(parts: Context, found: Run, job: int | None) -> _Retried:
    """Retry a run in the cell of its source, which executes its jobs and completes it."""
    from tidegate.engine.cells import cell_context, orchestrator_of
    from tidegate.engine.completion import failed_completions
    from tidegate.engine.gate_sync import Recovery

    number, cell, orchestrator = found.id, cell_context(parts, found.source), orchestrator_of(parts, found.source)
    computes = job is None and number in await parts.database.read(failed_completions, [number])
    again = await orchestrator.retry(number) if job is None else int(await orchestrator.retry_job(job))
    # A process that retried it before may have died between commit and enqueue. Enqueueing again is idempotent.
    await Recovery(cell.database, cell.gate).offer_run(number)
    await cell.commits.notify()
    return _Retried(run=await orchestrator.show(number), jobs=again, statistics=computes)


def _require_job(tx: Transaction, number: int, job: int) -> None:
    from tidegate.engine import runs as records
    from tidegate.engine.reports.progress import jobs_of

    records.get(tx, number)
    found = jobs_of(tx, number, after=job - 1, limit=1)
    if not found or found[0].id != job:
        raise InvalidArgument("job", job, f"run {number} has no such job")


def _states(names: Sequence[str]) -> tuple[RunState, ...]:
    found: list[RunState] = []
    for name in (name.strip().lower() for several in names for name in several.split(",")):
        if name not in _STATES:
            raise InvalidArgument("state", name, f"must be one of {', '.join(_STATES)}")
        found += ACTIVE_RUNS if name == _ACTIVE else [RunState(name)]
    return tuple(found)


def job_states(names: Sequence[str]) -> tuple[JobState, ...]:
    """Parse states of jobs, repeated or separated by commas; empty for all states."""
    found: list[JobState] = []
    for name in (name.strip().lower() for several in names for name in several.split(",")):
        if name == "all":
            return ()
        if name not in tuple(JobState):
            raise InvalidArgument("jobs", name, f"must be one of all, {', '.join(JobState)}")
        found.append(JobState(name))
    return tuple(found)


def _subject_name(run_: Run) -> str:
    return subject_name(run_.user_id, run_.login)


def _again(settings: Settings, of: Sequence[Run]) -> str:
    """The command that continues the first of these runs in the foreground."""
    from tidegate.engine.source_plugin import find_plugin

    first = of[0]
    try:
        return find_plugin(settings, first.source).command(first.user_id, first.login)
    except InvalidArgument:
        return f"tidegate collect --source {first.source} {first.login}, where the source is known"


def _login(settings: Settings, source: str | None, login: str) -> str:
    """The login as the source writes it."""
    from tidegate.engine.settings import CollectSettings
    from tidegate.engine.source_plugin import find_plugin

    return find_plugin(settings, source or settings.section(CollectSettings).source).subject(login).login


def _now() -> datetime:
    return datetime.now(UTC)
