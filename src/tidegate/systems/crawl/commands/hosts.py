"""`tidegate crawl hosts`: robots.txt rules and pauses of hosts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from tidegate.cli.wording import clock, exact_span
from tidegate.systems.crawl.commands.opening import JSON, ask, look, print_json

if TYPE_CHECKING:
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
    found = [one for one in look(lambda database: database.read(records.everything)) if forget in (None, one.host)]
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
