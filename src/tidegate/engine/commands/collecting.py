"""Collecting, as a command does it: plan, begin or resume, watch, and stop when it is over or when told to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

import msgspec

from tidegate.cli.stopping import work_until_over
from tidegate.engine.change_feed import RunChangeFeed
from tidegate.engine.commands.plan import CollectionPlan
from tidegate.engine.commands.planning import labels, make_plan
from tidegate.engine.commands.screens import ProgressOutput
from tidegate.engine.commands.watching import View, Watcher
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import SourceCell

T = TypeVar("T")

_AT_A_TIME = 50


class CollectOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the command ended."""

    plan: CollectionPlan
    view: View
    seconds: float
    was_interrupted: bool


async def collect_all(cell: SourceCell, subjects: Sequence[Subject], screen: ProgressOutput) -> CollectOutcome:
    """Collect all subjects with workers of this process, beside those of other processes."""
    began = monotonic()
    await cell.credentials.enrol()  # the leader does it too, but may be a process without the token of this one
    served = await _each(subjects, lambda subject: cell.credentials.pool_for(subject.user_id))
    pools = {subject.user_id: pool for subject, pool in zip(subjects, served, strict=True)}
    plan = await make_plan(cell, subjects, pools)
    screen.show_plan(plan)
    run_ids = await _each(subjects, lambda subject: cell.begin_or_resume(subject, pool=pools[subject.user_id]))
    parts = cell.parts
    watcher = Watcher(parts.database, parts.gate, parts.settings.gate, lambda: labels(cell), cell.plugin.bucket_of)
    watch = _watch(watcher, cell.change_feed, run_ids, screen)
    was_interrupted = await work_until_over(cell.process(), watch, screen.say)
    return CollectOutcome(
        plan=plan,
        view=await watcher.look(run_ids),
        seconds=monotonic() - began,
        was_interrupted=was_interrupted,
    )


async def _each(subjects: Sequence[Subject], work: Callable[[Subject], Awaitable[T]]) -> list[T]:
    """Call `work` for all of them, some at a time."""
    done: list[T] = []
    for start in range(0, len(subjects), _AT_A_TIME):
        done += await asyncio.gather(*(work(subject) for subject in subjects[start : start + _AT_A_TIME]))
    return done


async def _watch(watcher: Watcher, change_feed: RunChangeFeed, run_ids: Sequence[int], screen: ProgressOutput) -> None:
    """Show the runs whenever one of them changed, or the screen shows another time, until they are over.

    Runs that only a retry can end are not waited for.
    """
    async with change_feed.watch(run_ids) as watch:
        while True:
            view = await watcher.look(run_ids)
            screen.show(view)
            if view.is_over or view.is_stuck:
                return
            await watch.news(within_s=screen.patience_s)
            await watcher.pause()
