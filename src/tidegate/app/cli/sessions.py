"""`tidegate sessions`: list and revoke browser sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run
from tidegate.cli.wording import counted
from tidegate.core.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.http.session_records import OpenSession
    from tidegate.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Browser sessions.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")


@app.command("list")
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


@app.command()
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
    from tidegate.http.session_registry import SessionRegistry

    async with open_database(settings) as database:
        return await SessionRegistry(database, settings.http.session_lasts).listed()


async def _revoke(settings: Settings, session: str | None) -> Sequence[OpenSession]:
    from tidegate.connections import open_database
    from tidegate.http.session_registry import SessionRegistry

    async with open_database(settings) as database:
        registry = SessionRegistry(database, settings.http.session_lasts)
        if session is not None and not any(session in (each.id, each.key_id) for each in await registry.listed()):
            raise NotFound("open session or key", session)
        await registry.revoke(session)
        return await registry.listed()
