"""`tidegate collect`: plan, begin or resume runs, show how they go, and tell what came of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from tidegate.cli.running import load_settings, run_traced
from tidegate.core.errors import InvalidArgument
from tidegate.systems.github.kinds import COLUMNS, require_kinds
from tidegate.systems.github.settings import GithubSettings

if TYPE_CHECKING:
    from tidegate.app import Collection
    from tidegate.engine.commands.summary import Summary
    from tidegate.engine.source import Subject
    from tidegate.settings import Settings

_GITHUB = "github"
_TOKEN = "GITHUB_TOKEN"  # noqa: S105 - the name of a variable
_DOCUMENTS = tuple(COLUMNS)
_MOST_COUNTED = 50
"""Users whose documents are counted one by one; of more, those of everybody are."""
KINDS_HELP = (
    "What to collect: essential, all, or names of kinds, like issues,pulls,releases; docs/reference/github-entities.md "
    "lists them. May be given several times, or with commas."
)
REPOS_HELP = "Only repositories that match this pattern, like docs-* or octocat/hello*. May be given several times."
EXCLUDE_HELP = "No repository that matches this pattern. May be given several times."
ARCHIVED_HELP = "Only archived repositories, or only those that are not."
FORKS_HELP = "Only forks, or only repositories that are none."
_INTERRUPTED = "Interrupted before it had begun to collect; the same command goes on from here."


def collect(
    subjects: list[str] = typer.Argument(
        None,
        metavar="SUBJECTS",
        help="What to collect, in any mixture: a user (octocat), a repository (octocat/hello-world), an organization "
        "(org:github), a topic (topic:crdt), a search (search:QUERY), an address on github.com, or @FILE.",
    ),
    *,
    source: str = typer.Option(_GITHUB, help="The source to collect from; see the setting `sources`."),
    file: Path | None = typer.Option(None, "--file", help="A file with a subject on each line; - is standard input."),
    api_url: str | None = typer.Option(None, help="GitHub's address; that of GitHub Enterprise, or of a simulator."),
    kinds: list[str] = typer.Option(None, "--kinds", help=KINDS_HELP),
    repos: list[str] = typer.Option(None, "--repos", help=REPOS_HELP),
    exclude: list[str] = typer.Option(None, "--exclude", help=EXCLUDE_HELP),
    archived: bool | None = typer.Option(None, "--archived/--no-archived", help=ARCHIVED_HELP),
    forks: bool | None = typer.Option(None, "--forks/--no-forks", help=FORKS_HELP),
    since: str | None = typer.Option(None, help="Leave out what did not change after this time (ISO 8601)."),
    full: bool = typer.Option(False, "--full", help="Read everything again, so that deletions are noticed everywhere."),
    no_progress: bool = typer.Option(False, "--no-progress", help="Show no plan and no progress."),
    as_json: bool = typer.Option(False, "--json", help="Print the summary, with the plan, as JSON, and nothing else."),
) -> None:
    """Collect users, repositories, organizations and searches of GitHub, or the subjects of another source.

    The same command again goes on where it was stopped, or finds what is new.

    The calls are made with the stored credentials (`tidegate credentials add`), else with the token in GITHUB_TOKEN.
    Exit 0 when every run is complete, 1 when something failed, 130 when interrupted: Ctrl-C once shuts down gracefully,
    twice at once.
    """
    if source != _GITHUB:
        from tidegate.engine.commands.collect_source import collect_source

        own = {"--file": file, "--api-url": api_url, "--kinds": kinds, "--since": since, "--full": full}
        own |= {"--repos": repos, "--exclude": exclude, "--archived": archived, "--forks": forks}
        if foreign := [name for name, value in own.items() if value not in (None, False, [])]:
            raise typer.BadParameter(f"{', '.join(foreign)}: only for the source {_GITHUB}")
        raise typer.Exit(collect_source(source, subjects or [], as_json=as_json))
    from rich.console import Console

    from tidegate.engine.commands.run_text import print_lines
    from tidegate.engine.commands.summary import summary_lines

    options = _options(kinds, since, full=full)
    options |= selection_options(repos, exclude, archived=archived, forks=forks)
    wanted = subjects_of([*(subjects or []), *subjects_in(file)], options)
    settings = _settings(load_settings(), api_url)
    try:
        work = _collect(settings, os.environ.get(_TOKEN), wanted, quiet=no_progress or as_json)
        summary = run_traced("collect", settings, work)
    except KeyboardInterrupt:
        typer.echo(_INTERRUPTED, err=True)
        raise
    if as_json:
        typer.echo(msgspec.json.encode(summary))
    else:
        print_lines(Console(highlight=False), summary_lines(summary))
    raise typer.Exit(summary.exit_code)


async def _collect(settings: Settings, token: str | None, subjects: Sequence[Subject], *, quiet: bool) -> Summary:
    from rich.console import Console

    from tidegate.app import open_collection
    from tidegate.engine.commands.collecting import collect_all
    from tidegate.engine.commands.screens import open_screen
    from tidegate.engine.commands.summary import summarise
    from tidegate.engine.reports.progress import failures_of, unavailable_of

    console = Console(stderr=True, highlight=False)
    async with open_collection(settings, token=token) as collection:
        with open_screen(console, settings.log, quiet=quiet) as screen:
            outcome = await collect_all(collection, subjects, screen)
        run_ids, read = [run.id for run in outcome.view.runs], collection.parts.database.read
        failures, unavailable = await read(failures_of, run_ids), await read(unavailable_of, run_ids)
        documents = await _documents(collection, subjects)
        return summarise(outcome, documents, failures, _place(collection), unavailable=unavailable)


async def _documents(collection: Collection, subjects: Sequence[Subject]) -> dict[str, int]:
    from tidegate.systems.github import parse_subject

    accounts = dict.fromkeys(parse_subject(subject.login).account for subject in subjects)
    owners = list(accounts) if len(accounts) <= _MOST_COUNTED and None not in accounts else [None]
    count = collection.documents.of("github").count
    return {kind: sum([await count(kind, owner) for owner in owners]) for kind in _DOCUMENTS}


def _place(collection: Collection) -> str:
    return collection.documents.name


def _settings(settings: Settings, api_url: str | None) -> Settings:
    from tidegate.systems.github.requests import require_api_url

    if api_url is None:
        return settings
    github = settings.section(GithubSettings).model_copy(update={"api_url": require_api_url(api_url)})
    return settings.model_copy(update={"github": github})


def _options(kinds: Sequence[str] | None, since: str | None, *, full: bool) -> dict[str, object]:
    """What the runs want; whatever could not be done is refused before anything is opened."""
    from tidegate.systems.github.states import as_upstream

    options: dict[str, object] = {"full": True} if full else {}
    if kinds:
        named = [name.strip() for several in kinds for name in several.split(",") if name.strip()]
        options["include"] = sorted(require_kinds(named))
    if since is not None:
        options["since"] = as_upstream(since)
        if datetime.fromisoformat(as_upstream(since)) > datetime.now(UTC):
            raise InvalidArgument("since", since, "lies in the future, so that nothing would be collected")
    return options


def selection_options(
    repos: Sequence[str] | None, exclude: Sequence[str] | None, *, archived: bool | None, forks: bool | None
) -> dict[str, object]:
    """Which repositories are collected, as options of a run; only what was asked for."""
    asked = {"repos": list(repos or ()), "exclude": list(exclude or ()), "archived": archived, "forks": forks}
    return {name: value for name, value in asked.items() if value is not None and value != []}


def subjects_of(written: Sequence[str], options: dict[str, object]) -> list[Subject]:
    """The subjects that are named, each once; `@FILE` stands for those in a file. Refuses an empty list."""
    from tidegate.systems.github import parse_subject

    named = [each for text in written for each in (subjects_in(_file_named(text)) or [text])]
    if not named:
        raise typer.BadParameter("name at least one subject, or a file with some")
    known = dict.fromkeys(parse_subject(text) for text in named)
    return [subject.with_options(options) for subject in known]


def _file_named(text: str) -> Path | None:
    """The file that `@FILE` names. Where there is none, `@octocat` is a login."""
    file = Path(text[1:])
    return file if text.startswith("@") and len(text) > 1 and file.is_file() else None


def subjects_in(file: Path | None) -> list[str]:
    """The subjects in a file, one on each line; what follows a # is a remark. - is standard input."""
    from tidegate.systems.github import parse_subject

    if file is None:
        return []
    try:
        text = typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        try:
            parse_subject(line or "a")
        except InvalidArgument as error:
            raise typer.BadParameter(f"{file}, line {number}: {error}") from None
    return [line for line in lines if line]
