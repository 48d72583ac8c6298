"""`tidegate collect`: begin or resume runs, show how they go, and tell what came of them."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidegate.assembly import Parts, build_process, open_parts
from tidegate.cli.running import load_settings, run
from tidegate.collect.collector import Collector, Ground
from tidegate.collect.lifecycle import ACTIVE_RUNS
from tidegate.collect.one_token import OneToken
from tidegate.collect.progress import Failure, failures_of
from tidegate.collect.runs import Run, RunActive
from tidegate.collect.source import Subject
from tidegate.documents import open_documents
from tidegate.flow.gate import PoolStatus
from tidegate.github import API_URL, ESSENTIAL, GithubSource
from tidegate.kernel.errors import InvalidSettings
from tidegate.runtime.supervisor import Supervisor
from tidegate.settings import Settings
from tidegate.upstream import UpstreamClient

POOL = "github"
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
    source = GithubSource(api_url, include)
    summary = run(_collect(settings, source, token, subjects, shows=not (no_progress or as_json)))
    _tell(summary, as_json=as_json)
    if not summary.complete:
        raise typer.Exit(130)
    if summary.failures:
        raise typer.Exit(1)


async def _collect(
    settings: Settings, source: GithubSource, token: str, subjects: Sequence[Subject], *, shows: bool
) -> Summary:
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(open_parts(settings))
        client = await stack.enter_async_context(UpstreamClient(settings.upstream))
        documents = await open_documents(settings.documents, parts.database)
        stack.push_async_callback(documents.close)
        tokens = OneToken(token, pool=POOL, data_dir=settings.data_dir, limits=settings.gate)
        ground = Ground(parts.database, parts.gate, parts.jobs, parts.owner, documents)
        collector = Collector(
            ground, [source], caller=client, secrets=tokens, enrol_credentials=lambda: tokens.enrol(parts.gate)
        )
        process = build_process(
            parts,
            handlers=collector.handlers,
            services=collector.services,
            duties={"recovery": collector.duty},
            on_death=[collector.duty.ring],
        )
        run_ids = [await _begin(collector, subject) for subject in subjects]
        watching = asyncio.create_task(_watch(parts, collector, run_ids, process, shows=shows))
        await process.run()
        watching.cancel()
        runs = [await collector.orchestrator.show(run_id) for run_id in run_ids]
        failures = await parts.database.read(failures_of, run_ids)
    return Summary(complete=all(run.status not in ACTIVE_RUNS for run in runs), runs=runs, failures=failures)


async def _begin(collector: Collector, subject: Subject) -> int:
    """A new run, or the one that is still active."""
    try:
        return await collector.orchestrator.begin("github", subject, pool=POOL)
    except RunActive as active:
        return active.run_id


async def _watch(
    parts: Parts, collector: Collector, run_ids: Sequence[int], process: Supervisor, *, shows: bool
) -> None:
    """Redraw the picture, and stop the process when every run is over."""
    console = Console(stderr=True, quiet=not shows)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            runs = [await collector.orchestrator.show(run_id) for run_id in run_ids]
            live.update(_picture(runs, await parts.gate.status(POOL)))
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
