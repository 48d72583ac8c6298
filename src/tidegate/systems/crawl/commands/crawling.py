"""Runs a crawl for a command: starts or resumes it, shows progress, and stops at its end or on a signal."""

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tidegate.cli.running import configure_log
from tidegate.cli.stopping import work_until_over
from tidegate.cli.wording import counted, number
from tidegate.engine.lifecycle import ACTIVE_RUNS
from tidegate.engine.runs import Run, RunActive
from tidegate.settings import Settings
from tidegate.systems.crawl.commands.summary import CrawlSummary, summarise
from tidegate.systems.crawl.commands.waits import wait_of
from tidegate.systems.crawl.opening import OpenCrawl, open_crawl
from tidegate.systems.crawl.targets import CrawlOptions

_LINE_EVERY_S = 5.0
_LOOK_AGAIN_S = 1.0
_LEAST_PAUSE_S, _SHARE_OF_TIME = 0.05, 0.1
"""Maximum share of time for reading progress, since a crawl may end hundreds of tasks per second."""
_TOLD_HERE = ("crawl.robots_unreadable",)
"""Log events that are suppressed, because the command reports them itself with advice."""


async def crawl_to_the_end(settings: Settings, name: str, options: CrawlOptions, *, quiet: bool) -> CrawlSummary:
    """Crawl with the workers of this process; workers of other processes take part."""
    began, console = monotonic(), Console(stderr=True, highlight=False)
    configure_log(settings.log, told=_TOLD_HERE)
    async with open_crawl(settings) as crawl:
        run_id, note = await _begin(crawl, name, options)
        with _Board(console, quiet=quiet) as board:
            board.note(note)
            watch = _watch(crawl, run_id, board)
            was_interrupted = await work_until_over(crawl.cell.process(), watch, board.say)
        return await summarise(crawl, run_id, monotonic() - began, was_interrupted=was_interrupted)


async def _begin(crawl: OpenCrawl, name: str, options: CrawlOptions) -> tuple[int, str]:
    """Start a run, or resume the active one. Returns its id and a message for the user.

    The jobs of an active run are enqueued again, because the process that started it may have died before.
    """
    try:
        return await crawl.crawls.begin(name, options), ""
    except RunActive as active:
        run = await crawl.cell.orchestrator.show(active.run_id)
        # The gate must know the pace of the host before its jobs are enqueued again.
        await crawl.identities.hosts.register(run.login)
        await crawl.cell.resume(run.id)
        return run.id, _resumed(run, options.subject(name).options)


def _resumed(run: Run, asked: Mapping[str, Any]) -> str:
    """The message about a resumed run, with a warning if its options differ from the requested ones."""
    others = sorted(key for key in {*run.options, *asked} if run.options.get(key) != asked.get(key))
    told = f"resuming run {run.id}"
    if others:
        told += f", which started with another {', '.join(others)}; after its end, the same command uses yours"
    return told


async def _watch(crawl: OpenCrawl, run_id: int, board: "_Board") -> None:
    """Show the progress of the run after each change, until it ends."""
    async with crawl.cell.change_feed.watch([run_id]) as watch:
        while True:
            began = monotonic()
            run = await crawl.cell.orchestrator.show(run_id)
            if run.status not in ACTIVE_RUNS:
                board.show(run, None)
                return
            board.show(run, await crawl.cell.parts.database.read(wait_of, run.login))
            pause_s = max(_LEAST_PAUSE_S, (monotonic() - began) / _SHARE_OF_TIME)
            await watch.news(within_s=_LOOK_AGAIN_S)
            await asyncio.sleep(pause_s)  # limits the rate of reads during frequent changes


class _Board:
    """Shows progress: a bar in a terminal, otherwise a line from time to time. A reason for waiting is printed once."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}")),
            TimeElapsedColumn(),
        )
        self._console, self._quiet, self._live = console, quiet, console.is_terminal and not quiet
        self._progress = Progress(*columns, console=console, transient=True, disable=not self._live)
        self._task = self._progress.add_task("crawl", told="")
        self._line, self._told_at, self._wait = "", monotonic(), ""

    def __enter__(self) -> "_Board":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, run: Run, wait: str | None) -> None:
        """Show the state of the run, and why it waits."""
        failed = f", {number(run.failed_jobs)} failed" if run.failed_jobs else ""
        told = f"{number(run.ended_jobs)} of {counted(run.total_jobs, 'task')}, {counted(run.calls, 'call')}{failed}"
        self._progress.update(
            self._task, description=str(run.status), total=run.total_jobs, completed=run.ended_jobs, told=told
        )
        if self._quiet:
            return
        if wait and wait != self._wait:
            self._wait = wait
            self.note(wait)
        line = f"{run.status}: {told}"
        if not self._live and line != self._line and monotonic() - self._told_at >= _LINE_EVERY_S:
            self._line, self._told_at = line, monotonic()
            self.say(line)

    def note(self, text: str) -> None:
        """Print a message, unless the output is quiet."""
        if text and not self._quiet:
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line to the console."""
        self._console.print(text, markup=False, soft_wrap=True)
