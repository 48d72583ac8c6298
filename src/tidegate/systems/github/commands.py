"""`tidegate stats` shows statistics as numbers and charts, and `tidegate github deliveries` lists received webhooks."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.lazy import PLAIN
from tidegate.cli.running import load_settings, run

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.systems.github.statistics import GlobalStatistics, Statistics, UserStatistics
    from tidegate.systems.github.webhooks.deliveries import DeliveryView


def stats(
    login: str | None = typer.Argument(None, help="The user."),
    *,
    all_users: bool = typer.Option(False, "--all", help="Show totals of all collected users."),
    days: int = typer.Option(30, min=1, max=366, help="With --all: how many days to look back."),
    recompute: bool = typer.Option(False, "--recompute", help="Read all documents of the user again first."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON."),
) -> None:
    """Show the statistics of a user, or of all users; every run updates them.

    Days are days in UTC. docs/guides/statistics.md explains each figure. Exit code 1 if there are no statistics.
    """
    from tidegate.systems.github import parse_login

    if (login is None) != all_users:
        raise typer.BadParameter("name a user, or pass --all for all users")
    if login is None:
        _show_all_users(run(_overall(load_settings(), days)), as_json=as_json)
        return
    name = parse_login(login)
    found = run(_of_user(load_settings(), name, recompute=recompute))
    if found is None:
        typer.echo(f"no statistics of {name}: run tidegate collect {name}", err=True)
        raise typer.Exit(1)
    _show_user(found, as_json=as_json)


async def _of_user(settings: Settings, login: str, *, recompute: bool) -> UserStatistics | None:
    from tidegate.connections import open_database
    from tidegate.storage.documents import SqlDocuments, open_documents
    from tidegate.systems.github.statistics import Statistics

    async with open_database(settings) as database:
        if recompute:
            documents = await open_documents(settings.documents, database)
            try:
                return await _recomputed(Statistics(database, documents.of("github")), login)
            finally:
                await documents.close()
        # The statistics can be read without opening the document store.
        return await Statistics(database, SqlDocuments(database).of("github")).of_user(login)


async def _recomputed(statistics: Statistics, login: str) -> UserStatistics | None:
    found = await statistics.of_user(login)
    if found is None:
        return None
    await statistics.recompute(found.user_id)
    return await statistics.of_user(login)


async def _overall(settings: Settings, days: int) -> GlobalStatistics:
    from tidegate.connections import open_database
    from tidegate.storage.documents import SqlDocuments
    from tidegate.systems.github.statistics import Statistics

    async with open_database(settings) as database:
        return await Statistics(database, SqlDocuments(database).of("github")).overall(days=days)


def _show_user(found: UserStatistics, *, as_json: bool) -> None:
    from tidegate.cli.tables import table_console

    if as_json:
        typer.echo(msgspec.json.encode(found))
        return
    from tidegate.systems.github.stats_text import print_user

    print_user(table_console(), found, datetime.now(UTC))


def _show_all_users(found: GlobalStatistics, *, as_json: bool) -> None:
    from tidegate.cli.tables import table_console

    if as_json:
        typer.echo(msgspec.json.encode(found))
        return
    if found.totals.users == 0:
        typer.echo("there are no statistics yet: run tidegate collect LOGIN", err=True)
        raise typer.Exit(1)
    from tidegate.systems.github.stats_text import print_all_users

    print_all_users(table_console(), found, datetime.now(UTC))


webhooks_app = typer.Typer(rich_markup_mode=PLAIN, no_args_is_help=True)


@webhooks_app.callback()
def _github() -> None:
    """List deliveries of GitHub's webhooks."""


@webhooks_app.command()
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
