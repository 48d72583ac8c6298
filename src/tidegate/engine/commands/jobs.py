"""`tidegate jobs`: show single jobs and their requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import clock, counted, number

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from tidegate.engine.executions import Execution
    from tidegate.engine.reports.progress import JobDetail
    from tidegate.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Show single jobs and their requests.")


@app.callback()
def jobs() -> None:
    """Show single jobs and their requests."""


@app.command()
def show(
    job: int = typer.Argument(help="Id of a job, as printed by `tidegate runs show RUN --jobs all`.", min=1),
    *,
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Show one job with its newest executions: their requests, statuses, outcomes and next attempts."""
    from tidegate.cli.tables import table_console
    from tidegate.engine.commands.run_text import print_lines

    shown = run(_show(load_settings(), job))
    if as_json:
        typer.echo(msgspec.json.encode(shown))
        return
    console, now = table_console(), datetime.now(UTC)
    print_lines(console, _lines(shown, now))
    if shown.executions:
        console.print(_table(shown.executions, now))
    if shown.unreported_claims:
        claims = counted(shown.unreported_claims, "claim")
        typer.echo(f"{claims} left no result: the worker died or lost its lease, or the run ended.")


async def _show(settings: Settings, job: int) -> JobDetail:
    from tidegate.connections import open_database
    from tidegate.engine.reports.progress import job_of

    async with open_database(settings) as database:
        return await database.read(job_of, job)


def _lines(shown: JobDetail, now: datetime) -> Iterator[str]:
    """Describe a job in lines of text."""
    from tidegate.engine.commands.run_text import labelled, resource_name
    from tidegate.engine.source import FIRST_PAGE
    from tidegate.engine.source_plugin import kind_names

    page = "" if shown.page == FIRST_PAGE else f", {shown.page}"
    kind, resource = kind_names().get(shown.kind, shown.kind), resource_name(shown.kind, shown.resource)
    yield from labelled("job", [f"{shown.id}: {kind} of {resource}{page}"])
    yield from labelled("run", [f"{shown.run_id} of {shown.login} ({shown.source}): {shown.run_status}"])
    yield from labelled("state", [f"{shown.status}, {shown.attempts} of {shown.max_attempts} attempts"])
    times = {"created": shown.created_at, "started": shown.started_at, "ended": shown.completed_at}
    if shown.not_before is not None and shown.completed_at is None:
        times["next attempt"] = shown.not_before
    yield from labelled("times", [", ".join(f"{name} {clock(at, now)}" for name, at in times.items() if at)])
    yield from labelled("reason", [shown.last_error] if shown.last_error else [])
    requests = dict.fromkeys(f"{one.call.method} {one.call.url}" for one in shown.executions if one.call is not None)
    yield from labelled("requests", [*requests])


def _table(executions: Sequence[Execution], now: datetime) -> Table:
    """Return the table of executions."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("claim", "sent", "credential", "status"):
        table.add_column(name, overflow="fold")
    for name in ("took", "bytes"):
        table.add_column(name, justify="right", overflow="fold")
    for name in ("request id", "outcome", "next attempt", "reason"):
        table.add_column(name, overflow="fold")
    for one in executions:
        table.add_row(
            str(one.fence),
            *_sent(one, now),
            one.outcome or "running",
            "" if one.next_try_at is None else clock(one.next_try_at, now),
            Text(one.reason or ""),
        )
    return table


def _sent(one: Execution, now: datetime) -> tuple[str | Text, ...]:
    """The cells of the request; without one, only the credential is known."""
    from rich.text import Text

    call, credential = one.call, Text(one.credential)
    if call is None:
        return ("not sent" if one.ended_at else "", credential, "", "", "", "")
    size = "" if call.response_bytes is None else number(call.response_bytes)
    status = "none" if call.status is None else str(call.status)
    return clock(call.sent_at, now), credential, status, f"{call.duration_ms} ms", size, Text(call.request_id or "")
