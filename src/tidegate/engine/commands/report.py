"""`tidegate report`: reports for operators, one subcommand each; without a subcommand, a short version of all.

The HTTP API has the same reports under `/v1/reports`; docs/guides/operators-questions.md has them as SQL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import parse_since, parse_span
from tidegate.core.errors import Unavailable

if TYPE_CHECKING:
    from tidegate.engine.api.quotas import WaitingReport
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database

    Report = Callable[[Database, Settings], Awaitable[Any]]

app = typer.Typer(help="Print reports for operators; without a subcommand, a short version of all.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")
_SINCE = typer.Option(
    "24h", help="Active runs, and runs that ended since then: 90m, 24h, 7d, or a date or time (ISO 8601)."
)
_LIMIT = typer.Option(20, min=1, max=10_000, help="Maximum number of lines.")
_MOST = typer.Option(10_000, min=1, help="Maximum number of jobs to evaluate, starting with the newest runs.")
_TOO_LONG = timedelta(minutes=10)
_BRIEF = 5


@app.callback(invoke_without_command=True)
def everything(context: typer.Context, *, as_json: bool = _JSON) -> None:
    """Print a short version of every report unless a subcommand is given."""
    if context.invoked_subcommand is not None:
        return
    from tidegate.cli.tables import table_console
    from tidegate.engine.commands.report_text import TITLES, show

    results = run(_read_all(load_settings()))
    if as_json:
        typer.echo(msgspec.json.encode(results))
        return
    console = table_console()
    for name, result in results.items():
        console.print(f"{TITLES[name]}  (tidegate report {name})", style="bold", markup=False)
        show(console, result, _now())
        console.print()


@app.command()
def runs(
    *,
    since: str | None = typer.Option(None, help="Include ended runs only if they ended since then."),
    as_json: bool = _JSON,
) -> None:
    """Count runs by state."""
    from tidegate.engine.reports.states import runs_by_state

    moment = None if since is None else parse_since(since, _now())
    _print_report(lambda database, _: database.read(runs_by_state, moment), as_json=as_json)


@app.command()
def jobs(*, as_json: bool = _JSON) -> None:
    """Count the jobs of active runs by source and state."""
    from tidegate.engine.reports.states import jobs_by_state

    _print_report(lambda database, _: database.read(jobs_by_state), as_json=as_json)


@app.command()
def failing(*, since: str = _SINCE, limit: int = _LIMIT, most_jobs: int = _MOST, as_json: bool = _JSON) -> None:
    """List the kinds of jobs that fail most, with the last error of each."""
    from tidegate.engine.reports.kinds import failing_kinds

    moment = parse_since(since, _now())
    _print_report(lambda database, _: database.read(failing_kinds, moment, limit, most_jobs), as_json=as_json)


@app.command()
def slow(
    *,
    longer_than: str = typer.Option("10m", help="Threshold: 90s, 10m, 2h."),
    limit: int = _LIMIT,
    as_json: bool = _JSON,
) -> None:
    """List jobs that have been running for longer than a threshold; their worker may have died."""
    from tidegate.engine.reports.states import slow_jobs

    too_long = parse_span("longer-than", longer_than)
    _print_report(lambda database, _: database.read(slow_jobs, too_long, limit), as_json=as_json)


@app.command()
def waiting(*, limit: int = _LIMIT, as_json: bool = _JSON) -> None:
    """Count the jobs that wait for a quota, with the reasons and when they can continue."""
    _print_report(lambda database, settings: _waiting(database, settings, limit), as_json=as_json)


@app.command()
def times(*, since: str = _SINCE, limit: int = _LIMIT, most_jobs: int = _MOST, as_json: bool = _JSON) -> None:
    """Report the processing time of jobs by kind: median, 95th percentile and maximum."""
    from tidegate.engine.reports.kinds import processing_times

    moment = parse_since(since, _now())
    _print_report(lambda database, _: database.read(processing_times, moment, limit, most_jobs), as_json=as_json)


@app.command()
def retries(*, since: str = _SINCE, limit: int = _LIMIT, most_jobs: int = _MOST, as_json: bool = _JSON) -> None:
    """Report the number of retries by kind of job."""
    from tidegate.engine.reports.kinds import retry_counts

    moment = parse_since(since, _now())
    _print_report(lambda database, _: database.read(retry_counts, moment, limit, most_jobs), as_json=as_json)


def _print_report(report: Report, *, as_json: bool) -> None:
    from tidegate.cli.tables import table_console
    from tidegate.engine.commands.report_text import show

    result = run(_read(load_settings(), report))
    if as_json:
        typer.echo(msgspec.json.encode(result))
    else:
        show(table_console(), result, _now())


async def _read(settings: Settings, report: Report) -> Any:
    from tidegate.connections import open_database

    async with open_database(settings) as database:
        return await report(database, settings)


async def _read_all(settings: Settings) -> dict[str, Any]:
    from tidegate.connections import open_database
    from tidegate.engine.reports.kinds import failing_kinds, processing_times, retry_counts
    from tidegate.engine.reports.states import jobs_by_state, runs_by_state, slow_jobs

    since = _now() - timedelta(days=1)
    async with open_database(settings) as database:
        return {
            "runs": await database.read(runs_by_state),
            "jobs": await database.read(jobs_by_state),
            "failing": await database.read(failing_kinds, since, _BRIEF),
            "slow": await database.read(slow_jobs, _TOO_LONG, _BRIEF),
            "waiting": await _waiting(database, settings, _BRIEF),
            "times": await database.read(processing_times, since, _BRIEF),
            "retries": await database.read(retry_counts, since, _BRIEF),
        }


async def _waiting(database: Database, settings: Settings, limit: int) -> WaitingReport:
    """Read the report; if jobs wait and Valkey is available, with the reasons from the gate."""
    from tidegate.connections import build_context, open_valkey
    from tidegate.engine.api.quotas import waiting_report

    found = await waiting_report(database, None, limit)
    if not found.pools:
        return found
    try:
        async with open_valkey(settings) as valkey:
            return await waiting_report(database, build_context(settings, valkey, database).gate, limit)
    except Unavailable:
        return found


def _now() -> datetime:
    return datetime.now(UTC)
