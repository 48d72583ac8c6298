"""Commands of an installation: `tidegate migrate`, `settings` and `sessions`.

They apply missing migrations, show all settings, and list and revoke browser sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import counted
from tidegate.core.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.http.session_store import OpenSession
    from tidegate.settings import Settings


def migrate(*, as_json: bool = typer.Option(False, "--json", help="Print the result as JSON.")) -> None:
    """Update the schema of the database. It can be repeated, and run concurrently."""
    name, applied = run(_migrate(load_settings()))
    if as_json:
        typer.echo(msgspec.json.encode({"database": name, "applied": applied}))
    elif applied:
        typer.echo(f"{name}: applied {', '.join(applied)}")
    else:
        typer.echo(f"{name}: up to date")


async def _migrate(settings: Settings) -> tuple[str, list[str]]:
    from tidegate.app.application import create_system_tables
    from tidegate.storage.sql import Database
    from tidegate.storage.sql.migrate import migrate as bring_up_to_date
    from tidegate.system import enabled_systems

    settings.make_data_dir()
    async with await Database.open(settings.effective_database_url) as database:
        applied = await bring_up_to_date(database)
        return database.name, [*applied, *await create_system_tables(database, enabled_systems(settings))]


def settings(*, as_json: bool = typer.Option(False, "--json", help="Print the result as JSON.")) -> None:
    """Show all settings with their values; secrets are hidden."""
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table
    from tidegate.settings.reference import effective_settings

    effective = effective_settings(load_settings())
    if as_json:
        typer.echo(msgspec.json.encode(effective))
        return
    table = Table("setting", "value", box=None, pad_edge=False)
    for name, value in effective.items():
        table.add_row(name, "unset" if value is None else escape(str(value)))
    print_table(table)


sessions_app = typer.Typer(no_args_is_help=True, help="Browser sessions.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")


@sessions_app.command("list")
def list_(*, as_json: bool = _JSON) -> None:
    """List open sessions, newest first."""
    found = run(_listed(load_settings()))
    if as_json:
        typer.echo(msgspec.json.encode({"sessions": found}))
        return
    for each in found:
        until = f"{each.expires_at:%Y-%m-%d %H:%M} UTC"
        typer.echo(f"{each.id}  {each.role}  key {each.key_id}  from {each.address}  until {until}")
    if not found:
        typer.echo("No browser is logged in.")


@sessions_app.command()
def revoke(
    session: str | None = typer.Argument(None, help="Id of a session, or of a key for all its sessions."),
    *,
    everything: bool = typer.Option(False, "--all", help="Revoke all sessions."),
    as_json: bool = _JSON,
) -> None:
    """Revoke sessions. It takes effect in every process with its next request; keys stay valid."""
    if (session is None) != everything:
        raise InvalidArgument("session", session or "", "give the id of a session or of a key, or --all")
    left = run(_revoke(load_settings(), session))
    if as_json:
        typer.echo(msgspec.json.encode({"revoked": session or "*", "open": len(left)}))
    else:
        typer.echo(f"Revoked. {counted(len(left), 'session')} still open.")


async def _listed(settings: Settings) -> Sequence[OpenSession]:
    from tidegate.connections import open_database
    from tidegate.http.session_store import SessionRegistry

    async with open_database(settings) as database:
        return await SessionRegistry(database, settings.http.session_lasts).listed()


async def _revoke(settings: Settings, session: str | None) -> Sequence[OpenSession]:
    from tidegate.connections import open_database
    from tidegate.http.session_store import SessionRegistry

    async with open_database(settings) as database:
        registry = SessionRegistry(database, settings.http.session_lasts)
        if session is not None and not any(session in (each.id, each.key_id) for each in await registry.listed()):
            raise NotFound("open session or key", session)
        await registry.revoke(session)
        return await registry.listed()
