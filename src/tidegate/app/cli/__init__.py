"""The root of the command line: commands of the application and of all installed systems.

Exit codes: 0 success; 1 an error, which is reported; 2 an invalid command line; 130 interrupted.
"""

import sys
from collections.abc import Mapping
from typing import NamedTuple

import typer

from tidegate import __version__
from tidegate.cli.lazy import PLAIN, lazy_group
from tidegate.cli.running import make_gc_rare
from tidegate.core.errors import TidegateError
from tidegate.core.plugins import broken_systems, loadable_systems
from tidegate.system import Command

COMMANDS = {
    "dead-letters": Command(
        "tidegate.app.cli.dead_letters:app", "Group dead letters of all kinds; replay or discard a group."
    ),
    "doctor": Command(
        "tidegate.app.cli.doctor:doctor", "Check servers, files and credentials, with advice on problems."
    ),
    "migrate": Command("tidegate.app.cli.administration:migrate", "Update the schema of the database."),
    "serve": Command("tidegate.app.cli.up:serve", "Run the HTTP server without workers."),
    "sessions": Command("tidegate.app.cli.administration:sessions_app", "List browser sessions, and revoke them."),
    "settings": Command("tidegate.app.cli.administration:settings", "Show all settings with their values."),
    "simulate": Command("tidegate.app.cli.simulate:app", "Run a simulated upstream."),
    "up": Command("tidegate.app.cli.up:up", "Run workers, leader services and HTTP in one process."),
    "work": Command("tidegate.app.cli.up:work", "Run workers."),
}
"""Modules are imported when their command runs, so that a command starts quickly."""


class _Listing(NamedTuple):
    """The available commands, and the errors of systems with commands that are not available."""

    commands: dict[str, Command]
    problems: dict[str, str]


def _list_everything() -> _Listing:
    """List the commands of all installed systems. An error in a system is reported, and others stay available."""
    found, owners = dict(COMMANDS), dict.fromkeys(COMMANDS, "tidegate itself")
    problems = dict(broken_systems())
    for system in loadable_systems():
        for name, command in system.commands.items():
            if name in found:
                problems[system.name] = (
                    f"its command {name!r} is not available: {owners[name]} has a command of this name"
                )
            else:
                found[name], owners[name] = command, f"the system {system.name}"
    return _Listing(dict(sorted(found.items())), problems)


def _find(name: str) -> Command | None:
    """Find a command of a system; systems are imported one by one until it is found."""
    return next((found for system in loadable_systems() if (found := system.commands.get(name))), None)


def all_commands() -> Mapping[str, Command]:
    """All commands by name. If two systems have a command of the same name, the first system provides it."""
    return _list_everything().commands


def _problems() -> Mapping[str, str]:
    """Systems with unavailable commands, with the reasons."""
    return _list_everything().problems


app = typer.Typer(
    name="tidegate",
    help="Coordinates work around limits: collection, crawl, snapshots, waiting rooms, rankings and campaigns.",
    cls=lazy_group(COMMANDS, find=_find, everything=all_commands, problems=_problems),
    no_args_is_help=True,
    rich_markup_mode=PLAIN,
    pretty_exceptions_enable=False,
)


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Handle the options of the root command."""
    del version


_NO_CONNECTION = ". Check the address (`tidegate settings`, or --api-url) and the network connection."


def main() -> None:
    """Run a command; a `TidegateError` is printed in one line, without a traceback."""
    make_gc_rare()
    try:
        app(prog_name="tidegate")
    except TidegateError as error:
        from tidegate.core.telemetry.redaction import redact_text
        from tidegate.engine.upstream.messages import ConnectFailed

        advice = _NO_CONNECTION if isinstance(error, ConnectFailed) else ""
        typer.echo(f"tidegate: {redact_text(str(error))}{advice}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
