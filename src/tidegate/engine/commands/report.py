"""`tidegate report`: what operators ask, one command for each question; without a question, all of them in brief.

The same is answered under `/v1/reports`, and as SQL in docs/guides/operators-questions.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.core.errors import Unavailable
from tidegate.engine.commands.spans import parse_since, parse_span

if TYPE_CHECKING:
    from tidegate.engine.api.waiting_pools import WaitingReport
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database

    Question = Callable[[Database, Settings], Awaitable[Any]]

app = typer.Typer(help="Answer what operators ask; without a question, all of them in brief.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")
_SINCE = typer.Option(
    "24h", help="Runs that are not over, and those that ended since then: 90m, 24h, 7d, or a date or time (ISO 8601)."
)
_LIMIT = typer.Option(20, min=1, max=10_000, help="How many lines at most.")
_MOST = typer.Option(10_000, min=1, help="How many jobs to look at, at most; those of the newest runs.")
_TOO_LONG = timedelta(minutes=10)
_BRIEF = 5


@app.callback(invoke_without_command=True)
def everything(context: typer.Context, *, as_json: bool = _JSON) -> None:
    """Answer every question in brief, unless one is named."""
    if context.invoked_subcommand is not None:
        return
    from tidegate.cli.tables import table_console
    from tidegate.engine.commands.report_text import TITLES, show

    answers = run(_ask_all(load_settings()))
    if as_json:
        typer.echo(msgspec.json.encode(answers))
        return
    console = table_console()
    for name, answer in answers.items():
        console.print(f"{TITLES[name]}  (tidegate report {name})", style="bold", markup=False)
        show(console, answer, _now())
        console.print()


@app.command()
def runs(
    *,
    since: str | None = typer.Option(None, help="Of the runs that are over, only those that ended since then."),
    as_json: bool = _JSON,
) -> None:
    """Runs by state."""
    from tidegate.engine.reports.states import runs_by_state

    moment = None if since is None else parse_since(since, _now())
    _tell(lambda database, _: database.read(runs_by_state, moment), as_json=as_json)


@app.command()
def jobs(*, as_json: bool = _JSON) -> None:
    """Jobs of runs that are not over, by source and state."""
    from tidegate.engine.reports.states import jobs_by_state

    _tell(lambda database, _: database.read(jobs_by_state), as_json=as_json)


@app.command()
def failing(*, since: str = _SINCE, limit: int = _LIMIT, most_jobs: int = _MOST, as_json: bool = _JSON) -> None:
    """Kinds of jobs that fail most, and why the last one did."""
    from tidegate.engine.reports.kinds import failing_kinds

    moment = parse_since(since, _now())
    _tell(lambda database, _: database.read(failing_kinds, moment, limit, most_jobs), as_json=as_json)


@app.command()
def slow(
    *,
    longer_than: str = typer.Option("10m", help="How long is too long: 90s, 10m, 2h."),
    limit: int = _LIMIT,
    as_json: bool = _JSON,
) -> None:
    """Jobs that have been running too long; a worker that died may have left them."""
    from tidegate.engine.reports.states import slow_jobs

    too_long = parse_span("longer-than", longer_than)
    _tell(lambda database, _: database.read(slow_jobs, too_long, limit), as_json=as_json)


@app.command()
def waiting(*, limit: int = _LIMIT, as_json: bool = _JSON) -> None:
    """Jobs that wait for a quota: how many, why, and until when."""
    _tell(lambda database, settings: _waiting(database, settings, limit), as_json=as_json)


@app.command()
def times(*, since: str = _SINCE, limit: int = _LIMIT, most_jobs: int = _MOST, as_json: bool = _JSON) -> None:
    """How long jobs take by kind: half of them, 95 of 100, and the slowest."""
    from tidegate.engine.reports.kinds import processing_times

    moment = parse_since(since, _now())
    _tell(lambda database, _: database.read(processing_times, moment, limit, most_jobs), as_json=as_json)


@app.command()
def retries(*, since: str = _SINCE, limit: int = _LIMIT, most_jobs: int = _MOST, as_json: bool = _JSON) -> None:
    """How often jobs are tried again, by kind."""
    from tidegate.engine.reports.kinds import retry_counts

    moment = parse_since(since, _now())
    _tell(lambda database, _: database.read(retry_counts, moment, limit, most_jobs), as_json=as_json)


def _tell(question: Question, *, as_json: bool) -> None:
    from tidegate.cli.tables import table_console
    from tidegate.engine.commands.report_text import show

    answer = run(_ask(load_settings(), question))
    if as_json:
        typer.echo(msgspec.json.encode(answer))
    else:
        show(table_console(), answer, _now())


async def _ask(settings: Settings, question: Question) -> Any:
    from tidegate.connections import open_database

    async with open_database(settings) as database:
        return await question(database, settings)


async def _ask_all(settings: Settings) -> dict[str, Any]:
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
    """With the gate's reasons, where anything waits and its server answers."""
    from tidegate.connections import build_context, open_valkey
    from tidegate.engine.api.waiting_pools import waiting_report

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
