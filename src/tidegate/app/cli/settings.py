"""`tidegate settings`: shows all settings."""

import msgspec
import typer

from tidegate.cli.running import load_settings


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
