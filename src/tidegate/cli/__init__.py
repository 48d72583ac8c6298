"""The command line: one file per noun; parse, call, print, and meaning in the exit code.

Exit codes: 0 done; 1 something is wrong and was told; 2 the command line itself; 130 interrupted.
"""

import sys

import typer

from tidegate import __version__
from tidegate.cli.lazy import PLAIN, Command, lazy_group
from tidegate.core.errors import TidegateError

COMMANDS = {
    "campaign": Command("tidegate.cli.campaign:app", "Make, start and stop campaigns, and see who got what."),
    "collect": Command("tidegate.cli.collect:collect", "Collect what users did on GitHub."),
    "crawl": Command("tidegate.cli.crawl:app", "Crawl marketplaces, and see what came of it."),
    "credentials": Command("tidegate.cli.credentials:app", "Say whose tokens and apps may be used."),
    "doctor": Command("tidegate.cli.doctor:doctor", "Say what is reachable, and what to do about the rest."),
    "export": Command("tidegate.cli.export:export", "Write what was collected as Parquet, CSV or JSON Lines."),
    "migrate": Command("tidegate.cli.migrate:migrate", "Bring the database's schema up to date."),
    "ranking": Command("tidegate.cli.ranking:app", "Show who is ahead, and count everything anew."),
    "report": Command("tidegate.cli.report:app", "Answer what operators ask: what fails, waits, or takes too long."),
    "room": Command("tidegate.cli.room:app", "Make, open and close waiting rooms, and see who waits."),
    "runs": Command("tidegate.cli.runs:app", "Look at runs, cancel them, and have what failed done again."),
    "schedules": Command("tidegate.cli.schedules:app", "Begin runs by the clock."),
    "serve": Command("tidegate.cli.up:serve", "Answer over HTTP; other processes do the work."),
    "sessions": Command("tidegate.cli.sessions:app", "See which browsers are logged in, and revoke their sessions."),
    "settings": Command("tidegate.cli.settings:settings", "Show every setting with its value."),
    "simulate": Command("tidegate.cli.simulate:app", "Run a simulated upstream."),
    "snapshots": Command("tidegate.cli.snapshots:app", "Read snapshots, have them refreshed, and see what failed."),
    "stats": Command("tidegate.cli.stats:stats", "Show the statistics of a user, or of everybody."),
    "up": Command("tidegate.cli.up:up", "Run workers, the leader's duties and HTTP in one process."),
    "work": Command("tidegate.cli.up:work", "Run workers."),
}
"""Each is imported when it is run: the start of a command takes as long as its own imports."""

app = typer.Typer(
    name="tidegate",
    help="Stands between crowds and quotas: exceeds no limit, loses nothing, polls nothing.",
    cls=lazy_group(COMMANDS),
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


_NO_CONNECTION = ". Is the address right (--api-url, or TIDEGATE_GITHUB__API_URL), and can this machine reach it?"


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
