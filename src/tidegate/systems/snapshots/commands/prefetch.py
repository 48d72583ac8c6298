"""`tidegate snapshots prefetch`: the state of scheduled refreshes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import clock, number, span
from tidegate.systems.snapshots.settings import SnapshotSettings

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.systems.snapshots.prefetch.status import PrefetchStatus, SubjectCounts

_JSON = typer.Option(False, "--json", help="Print JSON.")


def prefetch(
    *,
    count: bool = typer.Option(
        False, "--count", help="Count all subjects by tier and change rate; slow on a large table."
    ),
    as_json: bool = _JSON,
) -> None:
    """Show scheduled refreshes: subjects due now, the daily budget, and the rates."""
    status = run(_status(load_settings(), counts_all=count))
    if as_json:
        typer.echo(msgspec.json.encode(status))
        return
    for line in _lines(status, datetime.now(UTC)):
        typer.echo(line)


async def _status(settings: Settings, *, counts_all: bool) -> PrefetchStatus:
    from tidegate.connections import open_database
    from tidegate.systems.snapshots.kinds import require_kinds
    from tidegate.systems.snapshots.prefetch.status import prefetch_status

    require_kinds(settings)
    async with open_database(settings) as database:
        return await database.read(prefetch_status, settings.section(SnapshotSettings).prefetch, counts_all)


def _lines(status: PrefetchStatus, now: datetime) -> list[str]:
    share = status.spent / status.budget if status.budget else 1.0
    renews = span((status.budget_renews_at - now).total_seconds())
    lines = [
        f"policy    {status.policy}" + ("" if status.enabled else ", switched off"),
        f"due now   {number(status.due_now)}",
        f"next due  {_moment(status.next_due_at, now)}",
        f"budget    {number(status.spent)} of {number(status.budget)} calls spent ({share:.0%}), new in {renews}",
        f"pace      {number(status.calls_per_second)} calls/s; the hour allows {number(status.target_per_second)}",
    ]
    if status.policy == "learned":
        price = "not known yet" if status.price is None else f"{status.price:.4g} days of freshness"
        lines.append(f"price     {price}")
    return lines if status.census is None else [*lines, *_census_lines(status.census)]


def _census_lines(census: SubjectCounts) -> list[str]:
    """Return the numbers of subjects by tier and by change rate as lines of text."""
    tiers = ", ".join(f"{number(count)} {tier}" for tier, count in census.tiers.items())
    rates = [f"  {name:<14}{number(count):>12}" for name, count in census.change_rates.items()]
    return [f"tiers     {tiers}", "changes a day", *rates]


def _moment(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "nothing is scheduled yet"
    late_s = (now - moment).total_seconds()
    return f"{clock(moment, now)}, {span(abs(late_s))} {'ago' if late_s > 0 else 'ahead'}"
