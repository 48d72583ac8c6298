"""Runs a crawl for a command: starts or resumes it, shows progress and why it waits, and summarizes the result.

It stops at the end of the crawl or on a signal.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tidegate.cli.running import configure_log
from tidegate.cli.stopping import work_until_over
from tidegate.cli.wording import clock, counted, number, span
from tidegate.engine.commands.run_text import SKIPPED, WITHHELD, failure_lines, labelled, skipped_lines
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState
from tidegate.engine.reports.progress import Failure, failures_of, kinds_of, unavailable_of
from tidegate.engine.runs import Run, RunActive
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl import hosts
from tidegate.systems.crawl.health_records import HostHealth
from tidegate.systems.crawl.hosts import Host
from tidegate.systems.crawl.identities import Identity, listed
from tidegate.systems.crawl.opening import OpenCrawl, open_crawl
from tidegate.systems.crawl.raws import RawState
from tidegate.systems.crawl.stages import SEARCH
from tidegate.systems.crawl.targets import CrawlOptions


def wait_of(tx: Transaction, host: str) -> str | None:
    """Why a host is not called now, until when, and what to do; None if no reason is known."""
    found = hosts.find(tx, host)
    if found is not None and found.rests_until is not None and found.rests_until > tx.now:
        return _host_pause_text(found, found.rests_until, tx.now)
    used = [one for one in listed(tx) if one.enabled]
    if not used:
        return "all identities are disabled; enable one: tidegate crawl identities enable NAME"
    rests = [_paused_health(one, host, tx.now) for one in used]
    resting = [one for one in rests if one is not None and one.resting_until is not None]
    if len(resting) < len(used):
        return None
    first = min(resting, key=lambda one: one.resting_until or tx.now)
    paused = "the only identity is paused" if len(used) == 1 else f"all {len(used)} identities are paused"
    until = clock(first.resting_until or tx.now, tx.now)
    return f"{host}: {paused} until {until}: {first.last_reason}; add identities, or raise crawl.delay"


def _host_pause_text(host: Host, until: datetime, now: datetime) -> str:
    again = clock(until, now)
    if host.failures:  # attempts to read robots.txt that failed in a row
        return f"{host.host}: robots.txt cannot be read: {host.reason}. Check --url. The next attempt is at {again}"
    return f"{host.host} is paused until {again}: {host.reason}"


def _paused_health(one: Identity, host: str, now: datetime) -> HostHealth | None:
    """The health of an identity that is paused at this host; otherwise None."""
    for health in one.health:
        if health.host == host and health.resting_until is not None and health.resting_until > now:
            return health
    return None


_FORBIDDEN = "robots.txt of"
_NOTHING_READ = "Nothing was read: the site withholds every search of this crawl."
_ASK = (
    "Nothing was read: robots.txt forbids every search of this crawl. Ask the owner of the site. "
    "--ignore-robots requests the pages anyway; use it only with the owner's permission."
)


class CrawlSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a crawl."""

    crawl: str
    run: int
    host: str
    status: RunState
    tasks: int
    succeeded: int
    """Completed tasks, including those with a withheld page."""
    failed: int
    withheld: int
    """Tasks for pages that the site does not show, or robots.txt forbids."""
    searches_read: int
    """Number of search pages that were read."""
    calls: int
    unchanged: int
    """Number of pages that had not changed."""
    skipped_items: int
    """Listed products that were skipped because their ids could not be read."""
    products: int
    """Number of listed products of this host."""
    gone: int
    """Number of products of this host that are no longer listed."""
    waiting: int
    """Answers of this run that are not applied yet."""
    dead: int
    """Answers of this run that could not be applied."""
    failures: Sequence[Failure]
    """The first failures."""
    unavailable: Sequence[Failure]
    """The first withheld pages."""
    waits: str | None
    """Why the run waits, if it has not ended."""
    seconds: float
    was_interrupted: bool

    @property
    def is_fruitless(self) -> bool:
        """Whether the run ended without reading a search."""
        return self.status is RunState.COMPLETED and not self.searches_read

    @property
    def exit_code(self) -> int:
        """The exit code of `tidegate crawl run`."""
        if self.was_interrupted:
            return 130
        is_well = self.status is RunState.COMPLETED and not self.failed and not self.dead and not self.is_fruitless
        return 0 if is_well else 1


async def summarise(crawl: OpenCrawl, run_id: int, seconds: float, *, was_interrupted: bool) -> CrawlSummary:
    """Summarize the current state of a run."""
    run, read = await crawl.cell.orchestrator.show(run_id), crawl.cell.parts.database.read
    counts = await crawl.raws.counts([RawState.PENDING, RawState.FAILED], run_id=run_id)
    kinds = await read(kinds_of, [run_id])
    return CrawlSummary(
        crawl=run.user_id,
        run=run.id,
        host=run.login,
        status=run.status,
        tasks=run.total_jobs,
        succeeded=run.succeeded_jobs,
        failed=run.failed_jobs,
        withheld=sum(kind.unavailable for kind in kinds),
        searches_read=sum(kind.succeeded for kind in kinds if kind.kind == SEARCH),
        calls=run.calls,
        unchanged=run.unchanged_calls,
        skipped_items=run.skipped_items,
        products=await crawl.products.count(host=run.login, is_gone=False),
        gone=await crawl.products.count(host=run.login, is_gone=True),
        waiting=counts[RawState.PENDING],
        dead=counts[RawState.FAILED],
        failures=await read(failures_of, [run_id]),
        unavailable=await read(unavailable_of, [run_id]),
        waits=await read(wait_of, run.login) if run.status in ACTIVE_RUNS else None,
        seconds=round(seconds, 1),
        was_interrupted=was_interrupted,
    )


def summary_lines(summary: CrawlSummary) -> Iterator[str]:
    """The summary as lines of text."""
    yield from labelled("crawl", [f"{summary.crawl} of {summary.host}: run {summary.run} {summary.status}"])
    failed = f", {number(summary.failed)} failed" if summary.failed else ""
    tasks = f"{number(summary.succeeded)} of {counted(summary.tasks, 'task')}{failed}, in {span(summary.seconds)}"
    yield from labelled("tasks", [tasks])
    unchanged = f", {number(summary.unchanged)} of them unchanged" if summary.unchanged else ""
    yield from labelled("calls", [f"{number(summary.calls)}{unchanged}"])
    yield from labelled("products", [_products(summary)])
    yield from labelled(SKIPPED, skipped_lines(summary.skipped_items))
    if summary.waiting:
        yield from labelled("applying", [f"{counted(summary.waiting, 'answer')} left; any process continues"])
    if summary.dead:
        dead = f"{counted(summary.dead, 'answer')} could not be applied; see: tidegate crawl dead --run {summary.run}"
        yield from labelled("dead", [dead])
    yield from labelled("failures", _failures(summary))
    yield from labelled(WITHHELD, [*failure_lines(summary.unavailable, summary.withheld)])
    yield from labelled("waits", [summary.waits] if summary.waits else [])
    yield from _advice(summary)


def _products(summary: CrawlSummary) -> str:
    gone = f", {number(summary.gone)} gone" if summary.gone else ""
    hint = f"; see: tidegate crawl products --host {summary.host}" if summary.products or summary.gone else ""
    return f"{number(summary.products)} at {summary.host}{gone}{hint}"


def _failures(summary: CrawlSummary) -> list[str]:
    lines = [*failure_lines(summary.failures, summary.failed)]
    over = summary.status not in ACTIVE_RUNS
    return [*lines, f"tidegate runs retry {summary.run} retries them"] if lines and over else lines


def _advice(summary: CrawlSummary) -> Iterator[str]:
    if summary.was_interrupted and summary.status in ACTIVE_RUNS:
        yield f"Interrupted; the same command continues. tidegate runs cancel {summary.run} cancels the run."
    elif summary.is_fruitless:
        yield _ASK if any(one.reason.startswith(_FORBIDDEN) for one in summary.unavailable) else _NOTHING_READ


_LINE_EVERY_S = 5.0
_LOOK_AGAIN_S = 1.0
_LEAST_PAUSE_S, _SHARE_OF_TIME = 0.05, 0.1
"""Maximum share of time for reading progress, since a crawl may end hundreds of tasks per second."""
_REPORTED_HERE = ("crawl.robots_unreadable",)
"""Log events that are suppressed, because the command reports them itself with advice."""


async def crawl_to_the_end(settings: Settings, name: str, options: CrawlOptions, *, quiet: bool) -> CrawlSummary:
    """Crawl with the workers of this process; workers of other processes take part."""
    began, console = monotonic(), Console(stderr=True, highlight=False)
    configure_log(settings.log, reported=_REPORTED_HERE)
    async with open_crawl(settings) as crawl:
        run_id, note = await _begin(crawl, name, options)
        with _ProgressDisplay(console, quiet=quiet) as display:
            display.print_unless_quiet(note)
            watch = _watch(crawl, run_id, display)
            was_interrupted = await work_until_over(crawl.cell.process(), watch, display.print_line)
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
    text = f"resuming run {run.id}"
    if others:
        text += f", which started with another {', '.join(others)}; after its end, the same command uses yours"
    return text


async def _watch(crawl: OpenCrawl, run_id: int, display: "_ProgressDisplay") -> None:
    """Show the progress of the run after each change, until it ends."""
    async with crawl.cell.change_feed.watch([run_id]) as watch:
        while True:
            began = monotonic()
            run = await crawl.cell.orchestrator.show(run_id)
            if run.status not in ACTIVE_RUNS:
                display.show(run, None)
                return
            display.show(run, await crawl.cell.parts.database.read(wait_of, run.login))
            pause_s = max(_LEAST_PAUSE_S, (monotonic() - began) / _SHARE_OF_TIME)
            await watch.wait(within_s=_LOOK_AGAIN_S)
            await asyncio.sleep(pause_s)  # limits the rate of reads during frequent changes


class _ProgressDisplay:
    """Shows progress: a bar in a terminal, otherwise a line from time to time. A reason for waiting is printed once."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}")),
            TimeElapsedColumn(),
        )
        self._console, self._quiet, self._live = console, quiet, console.is_terminal and not quiet
        self._progress = Progress(*columns, console=console, transient=True, disable=not self._live)
        self._task = self._progress.add_task("crawl", text="")
        self._line, self._told_at, self._wait = "", monotonic(), ""

    def __enter__(self) -> "_ProgressDisplay":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, run: Run, wait: str | None) -> None:
        """Show the state of the run, and why it waits."""
        failed = f", {number(run.failed_jobs)} failed" if run.failed_jobs else ""
        text = f"{number(run.ended_jobs)} of {counted(run.total_jobs, 'task')}, {counted(run.calls, 'call')}{failed}"
        self._progress.update(
            self._task, description=str(run.status), total=run.total_jobs, completed=run.ended_jobs, text=text
        )
        if self._quiet:
            return
        if wait and wait != self._wait:
            self._wait = wait
            self.print_unless_quiet(wait)
        line = f"{run.status}: {text}"
        if not self._live and line != self._line and monotonic() - self._told_at >= _LINE_EVERY_S:
            self._line, self._told_at = line, monotonic()
            self.print_line(line)

    def print_unless_quiet(self, text: str) -> None:
        """Print a message, unless the output is quiet."""
        if text and not self._quiet:
            self.print_line(text)

    def print_line(self, text: str) -> None:
        """Print a line to the console."""
        self._console.print(text, markup=False, soft_wrap=True)
