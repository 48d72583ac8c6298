"""The command line: one file per noun; parse, call, print, and meaning in the exit code.

Exit codes: 0 done; 1 something is wrong and was told; 2 the command line itself; 130 interrupted.
"""

import sys

import typer

from tidegate import __version__
from tidegate.cli import collect, doctor, migrate, settings, simulate
from tidegate.kernel.errors import TidegateError
from tidegate.telemetry.redaction import redact_text

app = typer.Typer(
    name="tidegate",
    help="Stands between crowds and quotas: exceeds no limit, loses nothing, polls nothing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("collect")(collect.collect)
app.command("doctor")(doctor.doctor)
app.command("migrate")(migrate.migrate)
app.command("settings")(settings.settings)
app.add_typer(simulate.app, name="simulate")


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Handle the options that belong to no command."""
    del version


def main() -> None:
    """Run a command; an error of our own is told in one line, without a traceback."""
    try:
        app()
    except TidegateError as error:
        typer.echo(f"tidegate: {redact_text(str(error))}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
