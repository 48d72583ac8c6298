"""`tidegate subjects`: list what was collected or is scheduled."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import clock, number, subject_name

if TYPE_CHECKING:
    from rich.table import Table

    from tidegate.engine.reports.subjects import CollectedSubject, FoundSubjects, SubjectQuery
    from tidegate.settings import Settings


def subjects(
    *,
    search: str | None = typer.Option(
        None, help="Only subjects with this text in their name or id, regardless of case."
    ),
    source: str | None = typer.Option(None, help="Only subjects of this source."),
    limit: int = typer.Option(50, min=1, max=10_000, help="Maximum number of subjects."),
    after: str | None = typer.Option(None, help="Only subjects with ids after this one."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """List what was collected or is scheduled, with the last run and the next due time.

    A subject is listed while one of its runs is kept or one of its schedules exists.
    """
    from tidegate.cli.tables import print_table
    from tidegate.engine.reports.subjects import SubjectQuery

    found = run(_find(load_settings(), SubjectQuery(source, search, after, limit)))
    if as_json:
        typer.echo(msgspec.json.encode({"subjects": found.subjects, "next_after": found.next_after}))
    elif found.subjects:
        print_table(_table(found.subjects, datetime.now(UTC)))
        if found.next_after is not None:
            typer.echo(f"Further subjects: tidegate subjects --after '{found.next_after}'")
    else:
        typer.echo("No subjects found. Collect one: tidegate collect LOGIN")


async def _find(settings: Settings, query: SubjectQuery) -> FoundSubjects:
    from tidegate.connections import open_database
    from tidegate.engine.reports.subjects import list_subjects

    async with open_database(settings) as database:
        return await database.read(list_subjects, query)


def _table(found: list[CollectedSubject], now: datetime) -> Table:
    """One row per subject; the source only where there are several."""
    from rich.table import Table
    from rich.text import Text

    has_sources = len({each.source for each in found}) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("subject", *(["source"] if has_sources else []), "last run", "state", "last completed", "next"):
        table.add_column(name)
    for name in ("runs", "documents"):
        table.add_column(name, justify="right")
    for each in found:
        last = each.last_run
        state = "never run" if last is None else str(last.status)
        failed = f", {number(last.failed_jobs)} failed" if last is not None and last.failed_jobs else ""
        table.add_row(
            Text(subject_name(each.id, each.login)),
            *([each.source] if has_sources else []),
            "" if last is None else f"{last.id} of {clock(last.created_at, now)}",
            f"{state}{failed}",
            "" if each.last_completed_at is None else clock(each.last_completed_at, now),
            _next(each, now),
            number(each.runs),
            number(each.documents),
        )
    return table


def _next(subject: CollectedSubject, now: datetime) -> str:
    if subject.next_at is not None:
        return clock(subject.next_at, now)
    return "paused" if subject.schedules else ""
