"""`tidegate schedules`: manage cron expressions that start runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
import typer

from tidegate.cli.running import load_settings, run, run_traced
from tidegate.cli.wording import subject_name
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

app = typer.Typer(no_args_is_help=True, help="Manage schedules that start runs.")

_JSON = typer.Option(False, "--json", help="Print the result as JSON.")
_NUMBERS = typer.Argument(help="Ids of schedules, as printed by `list`.")
_NONE_YET = 'There are no schedules. Add one: tidegate schedules add LOGIN --cron "0 3 * * *"'


@app.command()
def add(
    subjects: list[str] = typer.Argument(None, metavar="SUBJECTS", help="What to collect, as for `tidegate collect`."),
    *,
    source: str | None = SOURCE,
    file: Path | None = typer.Option(None, "--file", help="File with one subject per line; - is standard input."),
    cron: str = typer.Option(help='Minute, hour, day of month, month, day of week: "0 3 * * *" is daily at 03:00.'),
    timezone: str = typer.Option("UTC", help="Time zone of the cron expression, such as Europe/Berlin."),
    kinds: list[str] = typer.Option([], "--kinds", help=KINDS_HELP),
    repos: list[str] = typer.Option([], "--repos", help=REPOS_HELP),
    exclude: list[str] = typer.Option([], "--exclude", help=EXCLUDE_HELP),
    archived: bool | None = typer.Option(None, "--archived/--no-archived", help=ARCHIVED_HELP),
    forks: bool | None = typer.Option(None, "--forks/--no-forks", help=FORKS_HELP),
    since: str | None = typer.Option(None, help="Skip items that did not change after this time (ISO 8601)."),
    full: bool = typer.Option(
        False, "--full", help="Read everything again in each run, so that deletions are detected."
    ),
    as_json: bool = _JSON,
) -> None:
    """Add a schedule that starts a run for each subject at each due time. Adding it again replaces its options.

    A due time is skipped if the last run of the subject is still active. Due times that pass while no process runs
    start one run when the next process starts.
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
    print_schedules("schedules", added, as_json=as_json)


@app.command("list")
def list_(
    *,
    login: str | None = typer.Option(None, help="Only schedules of this subject."),
    source: str | None = typer.Option(None, help="Only schedules of this source."),
    as_json: bool = _JSON,
) -> None:
    """List schedules with their next due time and the result of the last one."""
    settings = load_settings()
    name = None if login is None else plugin_for(settings, source).subject(login).login
    found = run(_list(settings, name, source))
    if found or as_json:
        print_schedules("schedules", found, as_json=as_json)
    else:
        typer.echo(_NONE_YET if login is None else f"There are no schedules for {login}.")


@app.command()
def remove(numbers: list[int] = _NUMBERS, *, as_json: bool = _JSON) -> None:
    """Delete schedules. Runs that they started are not affected."""
    removed = run(_each(load_settings(), "remove", numbers))
    if as_json:
        typer.echo(msgspec.json.encode({"removed": removed}))
        return
    for schedule in removed:
        typer.echo(f"removed {schedule.id}: {_subject_name(schedule)}, {schedule.cron} {schedule.timezone}")


@app.command()
def pause(numbers: list[int] = _NUMBERS, *, as_json: bool = _JSON) -> None:
    """Pause schedules: they start no runs until they are resumed."""
    print_schedules("schedules", run(_each(load_settings(), "pause", numbers)), as_json=as_json)


@app.command()
def resume(numbers: list[int] = _NUMBERS, *, as_json: bool = _JSON) -> None:
    """Resume schedules at their next due time. Due times that passed during the pause are skipped."""
    print_schedules("schedules", run(_each(load_settings(), "resume", numbers)), as_json=as_json)


@app.command()
def trigger(
    number: int = typer.Argument(help="Id of a schedule, as printed by `list`."),
    *,
    key: str | None = typer.Option(
        None, help="Idempotency key: the same key starts no further run. Default: each command starts a run."
    ),
    as_json: bool = _JSON,
) -> None:
    """Start a run of a schedule now; a process such as `tidegate up` has to execute it.

    The firing is skipped if the last run of the subject is still active. A paused schedule starts nothing.
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
    """The schedules of all subjects, or of the subject `login`; of all sources, or of one."""
    from tidegate.connections import open_database
    from tidegate.engine.schedules.store import listed

    async with open_database(settings) as database:
        return await database.read(listed, login, 0, None, source)


async def _each(settings: Settings, what: str, numbers: Sequence[int]) -> list[Schedule]:
    from tidegate.engine.collection import open_schedules

    async with open_schedules(settings) as schedules:
        change = {"remove": schedules.remove, "pause": schedules.pause, "resume": schedules.resume}[what]
        for number in numbers:
            await schedules.show(number)  # raises before any is changed if one does not exist
        return [await change(number) for number in dict.fromkeys(numbers)]


async def _trigger(settings: Settings, number: int, key: str) -> Firing:
    from tidegate.connections import open_database
    from tidegate.engine.collection import open_source
    from tidegate.engine.schedules.store import get

    async with open_database(settings) as database:
        schedule = await database.read(get, number)
    async with open_source(settings, schedule.source) as collection:
        return await collection.trigger(number, key)


def print_schedules(name: str, schedules: Sequence[Schedule], *, as_json: bool) -> None:
    """Print schedules as a table or as JSON."""
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
        table.add_row(str(each.id), escape(_subject_name(each)), each.cron, each.timezone, next_at, escape(_last(each)))
    print_table(table)


def _subject_name(schedule: Schedule) -> str:
    return subject_name(schedule.user_id, schedule.login)


def _last(schedule: Schedule) -> str:
    if schedule.last_due_at is None:
        return "never due yet"
    result = schedule.last_error or f"run {schedule.last_run_id}"
    return f"{_shown(schedule.last_due_at, schedule.timezone)}: {result}"


def _shown(moment: datetime, timezone: str) -> str:
    try:
        local = moment.astimezone(ZoneInfo(timezone))
    except (KeyError, ValueError, OSError):  # unknown on this machine: shown in UTC
        local = moment
    return f"{local:%Y-%m-%d %H:%M %Z}"
