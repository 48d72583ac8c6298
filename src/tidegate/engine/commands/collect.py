"""`tidegate collect`: plan, begin or continue runs of a source, show their progress, and print the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidegate.cli.running import load_settings, run_traced
from tidegate.core.errors import InvalidArgument

if TYPE_CHECKING:
    from tidegate.engine.commands.summary import Summary
    from tidegate.engine.source import Subject
    from tidegate.engine.source_cell import SourceCell
    from tidegate.engine.source_plugin import SourcePlugin
    from tidegate.settings import Settings

SOURCE = typer.Option(None, "--source", help="The name of the source; that of the setting collect.source unless given.")
KINDS_HELP = (
    "What to collect: essential, all, or names of kinds, like issues,pulls,releases; docs/reference/github-entities.md "
    "lists them. May be given several times, or with commas."
)
REPOS_HELP = "Only repositories that match this pattern, like docs-* or octocat/hello*. May be given several times."
EXCLUDE_HELP = "No repository that matches this pattern. May be given several times."
ARCHIVED_HELP = "Only archived repositories, or only those that are not."
FORKS_HELP = "Only forks, or only repositories that are none."
_MOST_COUNTED = 50
"""Documents are counted owner by owner for so many owners; of more, those of all owners together."""
_INTERRUPTED = "Interrupted before it had begun to collect; the same command goes on from here."


def collect(
    subjects: list[str] = typer.Argument(
        None,
        metavar="SUBJECTS",
        help="What to collect, in any mixture: a user (octocat), a repository (octocat/hello-world), an organization "
        "(org:github), a topic (topic:crdt), a search (search:QUERY), an address on github.com, or @FILE. Subjects of "
        "another source as it names them.",
    ),
    *,
    source: str | None = SOURCE,
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

    The calls are made with the stored credentials (`tidegate credentials add`), else with the token of the environment
    (GITHUB_TOKEN; BOOKSHOP_TOKEN for a source named bookshop). Exit 0 when every run is complete, 1 when something
    failed, 130 when interrupted: Ctrl-C once shuts down gracefully, twice at once.
    """
    from rich.console import Console

    from tidegate.engine.commands.run_text import print_lines
    from tidegate.engine.commands.summary import summary_lines

    plugin = plugin_for(load_settings(), source, api_url)
    options = plugin.options(
        {
            **{"include": kinds, "since": since, "full": full},
            **{"repos": repos, "exclude": exclude, "archived": archived, "forks": forks},
        }
    )
    wanted = subjects_of(plugin, [*(subjects or []), *subjects_in(plugin, file)], options)
    try:
        work = _collect(plugin, wanted, quiet=no_progress or as_json)
        summary = run_traced("collect", plugin.settings, work)
    except KeyboardInterrupt:
        typer.echo(_INTERRUPTED, err=True)
        raise
    if as_json:
        typer.echo(msgspec.json.encode(summary))
    else:
        print_lines(Console(highlight=False), summary_lines(summary, plugin))
    raise typer.Exit(summary.exit_code)


async def _collect(plugin: SourcePlugin, subjects: Sequence[Subject], *, quiet: bool) -> Summary:
    from rich.console import Console

    from tidegate.engine.collection import open_source
    from tidegate.engine.commands.collecting import collect_all
    from tidegate.engine.commands.screens import open_screen
    from tidegate.engine.commands.summary import summarise
    from tidegate.engine.reports.progress import failures_of, unavailable_of

    settings, console = plugin.settings, Console(stderr=True, highlight=False)
    async with open_source(settings, plugin.name, needs_credential=True) as collection:
        cell = collection.cell(plugin.name)
        with open_screen(console, settings.log, quiet=quiet) as screen:
            outcome = await collect_all(cell, subjects, screen)
        run_ids, read = [run.id for run in outcome.view.runs], collection.parts.database.read
        return summarise(
            outcome,
            await _count_documents(cell, subjects),
            await read(failures_of, run_ids),
            collection.documents.name,
            unavailable=await read(unavailable_of, run_ids),
            is_missing=lambda failure: plugin.is_missing_subject(failure.kind, failure.resource, failure.reason),
        )


async def _count_documents(cell: SourceCell, subjects: Sequence[Subject]) -> dict[str, int]:
    """What is stored of these subjects, by kind: the kinds with declared columns first."""
    found = list(dict.fromkeys(cell.plugin.owner_of(subject) for subject in subjects))
    owners: Sequence[str | None] = found if len(found) <= _MOST_COUNTED and None not in found else [None]
    store = cell.documents.of(cell.plugin.name)
    kinds = dict.fromkeys([*cell.plugin.columns, *await store.kinds()])
    return {kind: sum([await store.count(kind, owner) for owner in owners]) for kind in kinds}


def plugin_for(settings: Settings, source: str | None, api_url: str | None = None) -> SourcePlugin:
    """The source of this name, by default that of the settings; with another address where one is given."""
    from tidegate.engine.settings import CollectSettings
    from tidegate.engine.source_plugin import find_plugin

    name = source or settings.section(CollectSettings).source
    plugin = find_plugin(settings, name)
    return plugin if api_url is None else find_plugin(plugin.at(api_url), name)


def subjects_of(plugin: SourcePlugin, texts: Sequence[str], options: Mapping[str, Any]) -> list[Subject]:
    """The subjects that are named, each once; `@FILE` stands for those in a file. Refuses an empty list."""
    named = [each for text in texts for each in (subjects_in(plugin, _file_named(text)) or [text])]
    if not named:
        raise typer.BadParameter("name at least one subject, or a file with some")
    found = [plugin.subject(text, options) for text in named]
    return list({subject.user_id: subject for subject in found}.values())


def _file_named(text: str) -> Path | None:
    """The file that `@FILE` names. Where there is none, `@octocat` is a login."""
    file = Path(text[1:])
    return file if text.startswith("@") and len(text) > 1 and file.is_file() else None


def subjects_in(plugin: SourcePlugin, file: Path | None) -> list[str]:
    """The subjects of a file, one on each line; text after a # is a comment. - is standard input."""
    if file is None:
        return []
    try:
        text = typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        try:
            if line:
                plugin.subject(line)
        except InvalidArgument as error:
            raise typer.BadParameter(f"{file}, line {number}: {error}") from None
    return [line for line in lines if line]
