"""`tidegate stats`: what is known of a user, or of everybody, in numbers and small charts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.systems.github.statistics import GlobalStatistics, Statistics, UserStatistics


def stats(
    login: str | None = typer.Argument(None, help="Of whom."),
    *,
    everybody: bool = typer.Option(False, "--all", help="Of everybody who was collected."),
    days: int = typer.Option(30, min=1, max=366, help="With --all: how many days to look back."),
    recompute: bool = typer.Option(False, "--recompute", help="Read all documents of the user again first."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON."),
) -> None:
    """Show the statistics of a user, or of all users; every run brings them up to date.

    Days are days in UTC. What each figure means is told in docs/guides/statistics.md. Exit 1 where there are none.
    """
    from tidegate.systems.github import parse_login

    if (login is None) != everybody:
        raise typer.BadParameter("name a user, or give --all for everybody")
    if login is None:
        _show_everybody(run(_overall(load_settings(), days)), as_json=as_json)
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
        # Reading needs no documents, wherever they are.
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
    from tidegate.systems.github.commands.stats_text import print_user

    print_user(table_console(), found, datetime.now(UTC))


def _show_everybody(found: GlobalStatistics, *, as_json: bool) -> None:
    from tidegate.cli.tables import table_console

    if as_json:
        typer.echo(msgspec.json.encode(found))
        return
    if found.totals.users == 0:
        typer.echo("no statistics of anybody: run tidegate collect LOGIN", err=True)
        raise typer.Exit(1)
    from tidegate.systems.github.commands.stats_text import print_everybody

    print_everybody(table_console(), found, datetime.now(UTC))
