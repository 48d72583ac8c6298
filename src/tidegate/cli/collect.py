"""`tidegate collect`: begin or resume runs, show how they go, and tell what came of them."""

import asyncio
import os
from collections.abc import Sequence

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidegate.assembly import Collection, open_collection
from tidegate.assembly.collection import POOL
from tidegate.cli.running import load_settings, run
from tidegate.collect.lifecycle import ACTIVE_RUNS
from tidegate.collect.progress import Failure, failures_of
from tidegate.collect.runs import Run, RunActive
from tidegate.collect.source import Subject
from tidegate.flow.gate import PoolStatus
from tidegate.github import API_URL, ESSENTIAL, GithubSettings
from tidegate.github.kinds import require_kinds
from tidegate.github.requests import require_api_url
from tidegate.kernel.errors import InvalidSettings
from tidegate.runtime.supervisor import Supervisor
from tidegate.settings import Settings

_TOKEN = "GITHUB_TOKEN"  # noqa: S105 - the name of a variable
_REFRESH_S = 0.25


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the runs."""

    complete: bool
    runs: list[Run]
    failures: list[Failure]


def collect(
    logins: list[str] = typer.Argument(help="Whose activity to collect."),
    *,
    api_url: str = typer.Option(API_URL, help="GitHub's address; that of GitHub Enterprise, or of a simulator."),
    include: list[str] = typer.Option(sorted(ESSENTIAL), help="What to collect; may be given several times."),
    since: str | None = typer.Option(None, help="Leave out what did not change after this time (ISO 8601)."),
    full: bool = typer.Option(False, "--full", help="Read everything again, so that deletions are noticed everywhere."),
    no_progress: bool = typer.Option(False, "--no-progress", help="Print nothing until the end."),
    as_json: bool = typer.Option(False, "--json", help="Print the summary as JSON."),
) -> None:
    """Collect what users did on GitHub. The same command again goes on where it was stopped, or finds what is new.

    The token comes from GITHUB_TOKEN. Exit 0 when every run is complete, 1 when jobs failed, 130 when interrupted.
    """
    settings, token = load_settings(), os.environ.get(_TOKEN)
    if not token:
        raise InvalidSettings(f"there is no token: set {_TOKEN} to one that may read what you collect")
    options = {"full": full} | ({"since": since} if since else {})
    subjects = [Subject(user_id=login, login=login, options=options) for login in dict.fromkeys(logins)]
    github = GithubSettings(api_url=require_api_url(api_url), include=tuple(sorted(require_kinds(include))))
    settings = settings.model_copy(update={"github": github})
    summary = run(_collect(settings, token, subjects, shows=not (no_progress or as_json)))
    _tell(summary, as_json=as_json)
    if not summary.complete:
        raise typer.Exit(130)
    if summary.failures:
        raise typer.Exit(1)


async def _collect(settings: Settings, token: str, subjects: Sequence[Subject], *, shows: bool) -> Summary:
    async with open_collection(settings, token=token) as collection:
        process, database = collection.process(), collection.parts.database
        run_ids = [await _begin(collection, subject) for subject in subjects]
        watching = asyncio.create_task(_watch(collection, run_ids, process, shows=shows))
        await process.run()
        watching.cancel()
        runs = [await collection.orchestrator.show(run_id) for run_id in run_ids]
        failures = await database.read(failures_of, run_ids)
    return Summary(complete=all(run.status not in ACTIVE_RUNS for run in runs), runs=runs, failures=failures)


async def _begin(collection: Collection, subject: Subject) -> int:
    """A new run, or the one that is still active."""
    try:
        return await collection.orchestrator.begin("github", subject, pool=POOL)
    except RunActive as active:
        return active.run_id


async def _watch(collection: Collection, run_ids: Sequence[int], process: Supervisor, *, shows: bool) -> None:
    """Redraw the picture, and stop the process when every run is over."""
    console = Console(stderr=True, quiet=not shows)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            runs = [await collection.orchestrator.show(run_id) for run_id in run_ids]
            live.update(_picture(runs, await collection.parts.gate.status(POOL)))
            if all(run.status not in ACTIVE_RUNS for run in runs):
                return process.stop()
            await asyncio.sleep(_REFRESH_S)


def _picture(runs: Sequence[Run], pool: PoolStatus) -> Table:
    table = Table("user", "state", "pages", "failed", box=None, caption=_waits(pool), caption_justify="left")
    for each in runs:
        table.add_row(each.login, each.status, f"{each.succeeded_jobs}/{each.total_jobs}", str(each.failed_jobs or ""))
    return table


def _waits(pool: PoolStatus) -> str:
    """What is left, and why somebody waits."""
    told: list[str] = []
    for credential in pool.credentials:
        for bucket in credential.buckets:
            left = "?" if bucket.remaining is None else f"{max(0, bucket.remaining - bucket.held):,}"
            opens = f", {bucket.reason}, opens in {bucket.opens_in_ms / 1000:.0f} s" if bucket.opens_in_ms else ""
            told.append(f"{bucket.name}: {left} left{opens}")
    return "; ".join(told)


def _tell(summary: Summary, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(summary))
        return
    for each in summary.runs:
        typer.echo(f"{each.login}: {each.status}, {each.succeeded_jobs} of {each.total_jobs} pages")
    for failure in summary.failures:
        typer.echo(f"  failed: {failure.kind} of {failure.resource}: {failure.reason}")
    if not summary.complete:
        typer.echo("stopped; the same command goes on from here")
