"""`tidegate collect`: plan, start or continue runs of a source, show their progress and print the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
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

SOURCE = typer.Option(None, "--source", help="Name of the source. Default: the setting collect.source.")
KINDS_HELP = (
    "What to collect: essential, all, or names of kinds, such as issues,pulls,releases; "
    "docs/reference/github-entities.md lists them. Can be repeated or separated by commas."
)
REPOS_HELP = "Only repositories that match this pattern, such as docs-* or octocat/hello*. Can be repeated."
EXCLUDE_HELP = "No repository that matches this pattern. Can be repeated."
ARCHIVED_HELP = "Only archived repositories, or only others."
FORKS_HELP = "Only forks, or only others."
_MOST_COUNTED = 50
"""Up to this number of owners, documents are counted per owner; with more, the documents of all owners are counted."""
_INTERRUPTED = "Interrupted before the collection started. Run the same command again to continue."


def collect(
    subjects: list[str] = typer.Argument(
        None,
        metavar="SUBJECTS",
        help="What to collect, in any combination: a user (octocat), a repository (octocat/hello-world), an "
        "organization (org:github), a topic (topic:crdt), a search (search:QUERY), a URL on github.com, or @FILE. For "
        "other sources, subjects in the form of that source.",
    ),
    *,
    source: str | None = SOURCE,
    file: Path | None = typer.Option(None, "--file", help="File with one subject per line; - is standard input."),
    api_url: str | None = typer.Option(None, help="URL of the GitHub API, for GitHub Enterprise or a simulator."),
    kinds: list[str] = typer.Option(None, "--kinds", help=KINDS_HELP),
    repos: list[str] = typer.Option(None, "--repos", help=REPOS_HELP),
    exclude: list[str] = typer.Option(None, "--exclude", help=EXCLUDE_HELP),
    archived: bool | None = typer.Option(None, "--archived/--no-archived", help=ARCHIVED_HELP),
    forks: bool | None = typer.Option(None, "--forks/--no-forks", help=FORKS_HELP),
    since: str | None = typer.Option(None, help="Skip items that did not change after this time (ISO 8601)."),
    full: bool = typer.Option(False, "--full", help="Read everything again, so that all deletions are detected."),
    no_progress: bool = typer.Option(False, "--no-progress", help="Show neither the plan nor the progress."),
    as_json: bool = typer.Option(False, "--json", help="Print only the summary, including the plan, as JSON."),
) -> None:
    """Collect users, repositories, organizations and searches of GitHub, or the subjects of another source.

    Running the same command again continues an interrupted collection, or collects what changed since the last one.

    Requests use the stored credentials (`tidegate credentials add`), otherwise the token from the environment
    (GITHUB_TOKEN; BOOKSHOP_TOKEN for a source named bookshop). Exit code 0: all runs are complete; 1: something failed;
    130: interrupted. Ctrl-C shuts down gracefully; a second Ctrl-C stops at once.
    """
    from tidegate.storage.valkey.embedded import starting_in_background

    settings = load_settings()
    chosen = {
        **{"include": kinds, "since": since, "full": full},
        **{"repos": repos, "exclude": exclude, "archived": archived, "forks": forks},
    }
    plugin = plugin_for(settings, source, api_url)
    options = plugin.options(chosen)
    wanted = subjects_of(plugin, [*(subjects or []), *subjects_in(plugin, file)], options)
    # The server starts while the modules of the engine are imported, but not for invalid arguments.
    embedded = nullcontext() if settings.valkey_url else starting_in_background(settings.make_data_dir())
    try:
        with embedded:
            work = _collect(plugin, wanted, quiet=no_progress or as_json)
            summary = run_traced("collect", plugin.settings, work)
    except KeyboardInterrupt:
        typer.echo(_INTERRUPTED, err=True)
        raise
    _print_summary(summary, plugin, as_json=as_json)
    raise typer.Exit(summary.exit_code)


def _print_summary(summary: Summary, plugin: SourcePlugin, *, as_json: bool) -> None:
    from rich.console import Console

    from tidegate.engine.commands.run_text import print_lines
    from tidegate.engine.commands.summary import summary_lines

    if as_json:
        typer.echo(msgspec.json.encode(summary))
    else:
        print_lines(Console(highlight=False), summary_lines(summary, plugin))


async def _collect(plugin: SourcePlugin, subjects: Sequence[Subject], *, quiet: bool) -> Summary:
    """Collect the subjects, show the progress, and return the summary."""
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
    """Count the stored documents of these subjects by kind, kinds with declared columns first."""
    found = list(dict.fromkeys(cell.plugin.owner_of(subject) for subject in subjects))
    owners: Sequence[str | None] = found if len(found) <= _MOST_COUNTED and None not in found else [None]
    store = cell.documents.of(cell.plugin.name)
    kinds = dict.fromkeys([*cell.plugin.columns, *await store.kinds()])
    return {kind: sum([await store.count(kind, owner) for owner in owners]) for kind in kinds}


def plugin_for(settings: Settings, source: str | None, api_url: str | None = None) -> SourcePlugin:
    """Return the source of this name, or that of the settings; with `api_url` as its address if it is given."""
    from tidegate.engine.settings import CollectSettings
    from tidegate.engine.source_plugin import find_plugin

    name = source or settings.section(CollectSettings).source
    plugin = find_plugin(settings, name)
    return plugin if api_url is None else find_plugin(plugin.at(api_url), name)


def subjects_of(plugin: SourcePlugin, texts: Sequence[str], options: Mapping[str, Any]) -> list[Subject]:
    """Parse subjects without duplicates; `@FILE` stands for the subjects in a file. Raises if there are none."""
    named = [each for text in texts for each in (subjects_in(plugin, _file_named(text)) or [text])]
    if not named:
        raise typer.BadParameter("at least one subject, or a file with subjects, is required")
    found = [plugin.subject(text, options) for text in named]
    return list({subject.user_id: subject for subject in found}.values())


def _file_named(text: str) -> Path | None:
    """The file that `@FILE` names; None if it does not exist, because `@octocat` can also be a login."""
    file = Path(text[1:])
    return file if text.startswith("@") and len(text) > 1 and file.is_file() else None


def subjects_in(plugin: SourcePlugin, file: Path | None) -> list[str]:
    """Read the subjects of a file, one per line; text after a # is a comment, - is standard input."""
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
