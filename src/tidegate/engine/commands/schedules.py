"""`tidegate schedules`: runs that begin by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
import typer

from tidegate.cli.running import load_settings, run, run_traced
from tidegate.cli.wording import whose
from tidegate.engine.commands.collect import (
    ARCHIVED_HELP,
    EXCLUDE_HELP,
    FORKS_HELP,
    KINDS_HELP,
    REPOS_HELP,
    SOURCE,
    plugin_for,
    subjects_in,
    subjects_of,
)

if TYPE_CHECKING:
    from tidegate.engine.schedules.firings import Firing
    from tidegate.engine.schedules.store import Schedule
    from tidegate.engine.source import Subject
    from tidegate.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Runs that begin by the clock.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")
_NUMBERS = typer.Argument(help="The numbers of schedules, as `list` shows them.")
_NONE_YET = 'There are no schedules. Add one: tidegate schedules add LOGIN --cron "0 3 * * *"'


@app.command()
def add(
    subjects: list[str] = typer.Argument(None, metavar="SUBJECTS", help="What to collect, as for `tidegate collect`."),
    *,
    source: str | None = SOURCE,
    file: Path | None = typer.Option(None, "--file", help="A file with a subject on each line; - is standard input."),
    cron: str = typer.Option(help='Minute, hour, day of month, month, day of week: "0 3 * * *" is every day at three.'),
    timezone: str = typer.Option("UTC", help="By whose clocks, like Europe/Berlin."),
    kinds: list[str] = typer.Option([], "--kinds", help=KINDS_HELP),
    repos: list[str] = typer.Option([], "--repos", help=REPOS_HELP),
    exclude: list[str] = typer.Option([], "--exclude", help=EXCLUDE_HELP),
    archived: bool | None = typer.Option(None, "--archived/--no-archived", help=ARCHIVED_HELP),
    forks: bool | None = typer.Option(None, "--forks/--no-forks", help=FORKS_HELP),
    since: str | None = typer.Option(None, help="Leave out what did not change after this time (ISO 8601)."),
    full: bool = typer.Option(False, "--full", help="Read everything again each time, so that deletions are noticed."),
    as_json: bool = _JSON,
) -> None:
    """Begin a run for each subject whenever the time has come. The same again changes only its options.

    A subject whose last run is still active is left out once. Times that pass while no process runs begin one run when
    the next process starts.
    """
    settings = load_settings()
    plugin = plugin_for(settings, source)
    options = plugin.options(
        {
            **{"include": kinds, "since": since, "full": full},
            **{"repos": repos, "exclude": exclude, "archived": archived, "forks": forks},
        }
    )
    wanted = subjects_of(plugin, [*(subjects or []), *subjects_in(plugin, file)], options)
    added = run(_add(settings, plugin.name, wanted, cron, timezone))
    tell("schedules", added, as_json=as_json)


@app.command("list")
def list_(
    *,
    login: str | None = typer.Option(None, help="Only those of this subject."),
    source: str | None = typer.Option(None, help="Only those of this source."),
    as_json: bool = _JSON,
) -> None:
    """Show the schedules: when they are due next, and the result of their last due time."""
    settings = load_settings()
    name = None if login is None else plugin_for(settings, source).subject(login).login
    found = run(_list(settings, name, source))
    if found or as_json:
        tell("schedules", found, as_json=as_json)
    else:
        typer.echo(_NONE_YET if login is None else f"There are no schedules of {login}.")


@app.command()
def remove(numbers: list[int] = _NUMBERS, *, as_json: bool = _JSON) -> None:
    """Forget schedules. Runs that they began go on."""
    removed = run(_each(load_settings(), "remove", numbers))
    if as_json:
        typer.echo(msgspec.json.encode({"removed": removed}))
        return
    for schedule in removed:
        typer.echo(f"removed {schedule.id}: {_whose(schedule)}, {schedule.cron} {schedule.timezone}")


@app.command()
def pause(numbers: list[int] = _NUMBERS, *, as_json: bool = _JSON) -> None:
    """Let schedules begin nothing until they are resumed."""
    tell("schedules", run(_each(load_settings(), "pause", numbers)), as_json=as_json)


@app.command()
def resume(numbers: list[int] = _NUMBERS, *, as_json: bool = _JSON) -> None:
    """Go on with the next due time; what came due meanwhile is left out."""
    tell("schedules", run(_each(load_settings(), "resume", numbers)), as_json=as_json)


@app.command()
def trigger(
    number: int = typer.Argument(help="The number of a schedule, as `list` shows it."),
    *,
    key: str | None = typer.Option(
        None, help="The name of this firing: the same again begins nothing more. Else each command is one of its own."
    ),
    as_json: bool = _JSON,
) -> None:
    """Begin a run of a schedule now; a process such as `tidegate up` has to execute it.

    A user whose last run is still active is left out. A schedule that is paused begins nothing.
    """
    named = key if key is not None else f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    settings = load_settings()
    firing = run_traced("schedules trigger", settings, _trigger(settings, number, named))
    if as_json:
        typer.echo(msgspec.json.encode(firing))
    elif firing.run_id is None:
        typer.echo(f"{firing.outcome} {firing.firing_key}: {firing.reason}")
    else:
        typer.echo(f"{firing.outcome} {firing.firing_key}: run {firing.run_id}")


async def _add(
    settings: Settings, source: str, subjects: Sequence[Subject], cron: str, timezone: str
) -> list[Schedule]:
    from tidegate.engine.collection import open_schedules

    async with open_schedules(settings, source) as schedules:
        return await schedules.add(source, subjects, cron=cron, timezone=timezone)


async def _list(settings: Settings, login: str | None, source: str | None) -> list[Schedule]:
    from tidegate.connections import open_database
    from tidegate.engine.schedules.store import listed

    async with open_database(settings) as database:
        return await database.read(listed, login, 0, None, source)


async def _each(settings: Settings, what: str, numbers: Sequence[int]) -> list[Schedule]:
    from tidegate.engine.collection import open_schedules

    async with open_schedules(settings) as schedules:
        change = {"remove": schedules.remove, "pause": schedules.pause, "resume": schedules.resume}[what]
        for number in numbers:
            await schedules.show(number)  # all exist, or none is changed
        return [await change(number) for number in dict.fromkeys(numbers)]


async def _trigger(settings: Settings, number: int, key: str) -> Firing:
    from tidegate.connections import open_database
    from tidegate.engine.collection import open_source
    from tidegate.engine.schedules.store import get

    async with open_database(settings) as database:
        schedule = await database.read(get, number)
    async with open_source(settings, schedule.source) as collection:
        return await collection.trigger(number, key)


def tell(name: str, schedules: Sequence[Schedule], *, as_json: bool) -> None:
    """Print schedules, for people or as JSON."""
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table

    if as_json:
        typer.echo(msgspec.json.encode({name: schedules}))
        return
    subject = "crawl" if all(each.login != each.user_id for each in schedules) else "login"
    table = Table("id", subject, "cron", "time zone", "next", "last", box=None, pad_edge=False)
    for each in schedules:
        next_at = "paused" if each.next_at is None else _shown(each.next_at, each.timezone)
        table.add_row(str(each.id), escape(_whose(each)), each.cron, each.timezone, next_at, escape(_last(each)))
    print_table(table)


def _whose(schedule: Schedule) -> str:
    return whose(schedule.user_id, schedule.login)


def _last(schedule: Schedule) -> str:
    if schedule.last_due_at is None:
        return "never due yet"
    came_of_it = schedule.last_error or f"run {schedule.last_run_id}"
    return f"{_shown(schedule.last_due_at, schedule.timezone)}: {came_of_it}"


def _shown(moment: datetime, timezone: str) -> str:
    try:
        local = moment.astimezone(ZoneInfo(timezone))
    except (KeyError, ValueError, OSError):  # not known on this machine; the moment itself is in UTC
        local = moment
    return f"{local:%Y-%m-%d %H:%M %Z}"
