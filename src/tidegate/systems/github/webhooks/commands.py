"""`tidegate github deliveries`: lists received webhooks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.lazy import PLAIN
from tidegate.cli.running import load_settings, run

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.systems.github.webhooks.deliveries import DeliveryView

app = typer.Typer(rich_markup_mode=PLAIN, no_args_is_help=True)


@app.callback()
def _github() -> None:
    """List deliveries of GitHub's webhooks."""


@app.command()
def deliveries(
    *,
    waiting: bool = typer.Option(False, "--waiting", help="Only deliveries that are not applied yet."),
    limit: int = typer.Option(20, min=1, max=1000, help="Maximum number of deliveries, newest first."),
    as_json: bool = typer.Option(False, "--json", help="Print it as JSON."),
) -> None:
    """List received deliveries of webhooks, with the number of documents that each changed."""
    found = run(_recent(load_settings(), limit, only_waiting=waiting))
    if as_json:
        typer.echo(msgspec.json.encode(found))
        return
    from rich.table import Table

    from tidegate.cli.tables import print_table

    shown = Table(box=None)
    for column in ("received", "event", "repository", "documents", "delivery"):
        shown.add_column(column)
    for each in found:
        shown.add_row(
            f"{each.received_at:%Y-%m-%d %H:%M:%S}",
            f"{each.event}.{each.action}" if each.action else each.event,
            each.repository,
            "waiting" if each.applied_at is None else f"{each.documents} changed",
            each.id,
        )
    if found:
        print_table(shown)
    else:
        typer.echo("no deliveries")


async def _recent(settings: Settings, limit: int, *, only_waiting: bool) -> list[DeliveryView]:
    from tidegate.connections import open_database
    from tidegate.systems.github.webhooks import deliveries as stored

    async with open_database(settings) as database:
        return await database.read(partial(stored.recent, limit=limit, only_waiting=only_waiting))
