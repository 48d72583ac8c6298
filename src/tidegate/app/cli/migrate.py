"""`tidegate migrate`: applies missing migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run

if TYPE_CHECKING:
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
    from tidegate.app.tables import create_system_tables
    from tidegate.storage.sql import Database
    from tidegate.storage.sql.migrate import migrate as bring_up_to_date
    from tidegate.system import enabled_systems

    settings.make_data_dir()
    async with await Database.open(settings.effective_database_url) as database:
        applied = await bring_up_to_date(database)
        return database.name, [*applied, *await create_system_tables(database, enabled_systems(settings))]
