"""The root of the command line: commands of the application, and those of the systems that are installed.

Exit codes: 0 done; 1 something is wrong and was told; 2 the command line itself; 130 interrupted.
"""

import sys
from collections.abc import Mapping
from typing import NamedTuple

import typer

from tidegate import __version__
from tidegate.cli.lazy import PLAIN, lazy_group
from tidegate.core.errors import TidegateError
from tidegate.core.plugins import broken_systems, loadable_systems
from tidegate.system import Command

COMMANDS = {
    "doctor": Command("tidegate.app.cli.doctor:doctor", "Say what is reachable, and what to do about the rest."),
    "github": Command("tidegate.app.cli.github:app", "Receive GitHub's webhooks, and show what was delivered."),
    "migrate": Command("tidegate.app.cli.migrate:migrate", "Bring the database's schema up to date."),
    "serve": Command("tidegate.app.cli.up:serve", "Answer over HTTP; other processes do the work."),
    "sessions": Command(
        "tidegate.app.cli.sessions:app", "See which browsers are logged in, and revoke their sessions."
    ),
    "settings": Command("tidegate.app.cli.settings:settings", "Show every setting with its value."),
    "simulate": Command("tidegate.app.cli.simulate:app", "Run a simulated upstream."),
    "up": Command("tidegate.app.cli.up:up", "Run workers, the leader's duties and HTTP in one process."),
    "work": Command("tidegate.app.cli.up:work", "Run workers."),
}
"""Each is imported when it is run: the start of a command takes as long as its own imports."""


class _Listing(NamedTuple):
    """The commands that can be used, and what is wrong with the systems whose commands cannot."""

    commands: dict[str, Command]
    problems: dict[str, str]


def _list_everything() -> _Listing:
    """Look through all installed systems. A mistake in one of them is a problem to report, and not an error."""
    found, owners = dict(COMMANDS), dict.fromkeys(COMMANDS, "tidegate itself")
    problems = dict(broken_systems())
    for system in loadable_systems():
        for name, command in system.commands.items():
            if name in found:
                problems[system.name] = f"its command {name!r} cannot be used: {owners[name]} has one of this name"
            else:
                found[name], owners[name] = command, f"the system {system.name}"
    return _Listing(dict(sorted(found.items())), problems)


def _find(name: str) -> Command | None:
    """A command of a system; systems are imported only until it is found."""
    return next((found for system in loadable_systems() if (found := system.commands.get(name))), None)


def all_commands() -> Mapping[str, Command]:
    """Every command by name. Where two systems have a command of the same name, it is that of the first."""
    return _list_everything().commands


def _problems() -> Mapping[str, str]:
    """Systems with commands that cannot be used, and why."""
    return _list_everything().problems


app = typer.Typer(
    name="tidegate",
    help="Stands between crowds and quotas: exceeds no limit, loses nothing, polls nothing.",
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
    """Handle the options that belong to no command."""
    del version


_NO_CONNECTION = ". Is the address right (see `tidegate settings`, or --api-url), and can this machine reach it?"


def main() -> None:
    """Run a command; an error of our own is told in one line, without a traceback."""
    try:
        app(prog_name="tidegate")
    except TidegateError as error:
        from tidegate.core.telemetry.redaction import redact_text
        from tidegate.engine.upstream.errors import ConnectFailed

        advice = _NO_CONNECTION if isinstance(error, ConnectFailed) else ""
        typer.echo(f"tidegate: {redact_text(str(error))}{advice}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
