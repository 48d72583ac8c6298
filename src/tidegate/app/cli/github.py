"""`tidegate github`: receive webhooks, and list deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.app.cli.up import receive_webhooks
from tidegate.cli.lazy import PLAIN
from tidegate.cli.running import run

if TYPE_CHECKING:
    from tidegate.systems.github.webhooks.deliveries import DeliveryView

app = typer.Typer(rich_markup_mode=PLAIN, no_args_is_help=True)
_AS_JSON = typer.Option(False, "--json", help="Print it as JSON.")


@app.callback()
def _github() -> None:
    """Receive webhooks of GitHub, and list deliveries."""


@app.command()
def webhook(
    *,
    host: str | None = typer.Option(None, help="The address to listen on, instead of the setting http.host."),
    port: int | None = typer.Option(
        None, min=0, max=65535, help="The port, instead of the setting http.port; 0: any free one."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the start and the end as one line of JSON each."),
) -> None:
    """Run a server that only receives webhooks of GitHub, until SIGTERM or Ctrl-C. `up` and `serve` receive them too.

    The setting github_webhooks.secrets has the secrets of the webhooks.
    """
    receive_webhooks(host, port, as_json=as_json)


@app.command()
def deliveries(
    *,
    waiting: bool = typer.Option(False, "--waiting", help="Only deliveries that are not applied yet."),
    limit: int = typer.Option(20, min=1, max=1000, help="Maximum number of deliveries, newest first."),
    as_json: bool = _AS_JSON,
) -> None:
    """List received deliveries of webhooks, with the number of documents that each changed."""
    found = run(_recent(limit, only_waiting=waiting))
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


async def _recent(limit: int, *, only_waiting: bool) -> list[DeliveryView]:
    from functools import partial

    from tidegate.connections import open_database
    from tidegate.settings import Settings
    from tidegate.systems.github.webhooks import deliveries as stored

    async with open_database(Settings.load()) as database:
        return await database.read(partial(stored.recent, limit=limit, only_waiting=only_waiting))
