"""The summary of a crawl, as text and as JSON."""

from collections.abc import Iterator, Sequence

import msgspec

from tidegate.cli.wording import counted, number, span
from tidegate.engine.commands.run_text import SKIPPED, WITHHELD, failure_lines, labelled, skipped_lines
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState
from tidegate.engine.reports.progress import Failure, failures_of, kinds_of, unavailable_of
from tidegate.systems.crawl.commands.waits import wait_of
from tidegate.systems.crawl.opening import OpenCrawl
from tidegate.systems.crawl.raws import RawState
from tidegate.systems.crawl.stages import SEARCH

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
    look = f"; see: tidegate crawl products --host {summary.host}" if summary.products or summary.gone else ""
    return f"{number(summary.products)} at {summary.host}{gone}{look}"


def _failures(summary: CrawlSummary) -> list[str]:
    lines = [*failure_lines(summary.failures, summary.failed)]
    over = summary.status not in ACTIVE_RUNS
    return [*lines, f"tidegate runs retry {summary.run} retries them"] if lines and over else lines


def _advice(summary: CrawlSummary) -> Iterator[str]:
    if summary.was_interrupted and summary.status in ACTIVE_RUNS:
        yield f"Interrupted; the same command continues. tidegate runs cancel {summary.run} cancels the run."
    elif summary.is_fruitless:
        yield _ASK if any(one.reason.startswith(_FORBIDDEN) for one in summary.unavailable) else _NOTHING_READ
