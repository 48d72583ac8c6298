"""Runs the collection of a command: plan, start or resume runs, show progress, stop at the end or on a signal."""

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
    """The plan and the final state of a collection command."""

    plan: CollectionPlan
    view: View
    seconds: float
    was_interrupted: bool


async def collect_all(cell: SourceCell, subjects: Sequence[Subject], screen: ProgressOutput) -> CollectOutcome:
    """Collect all subjects with the workers of this process; other processes may work on them too."""
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
        view=await watcher.read_view(run_ids),
        seconds=monotonic() - began,
        was_interrupted=was_interrupted,
    )


async def _each(subjects: Sequence[Subject], work: Callable[[Subject], Awaitable[T]]) -> list[T]:
    """Call `work` for all subjects, a limited number of them at a time."""
    done: list[T] = []
    for start in range(0, len(subjects), _AT_A_TIME):
        done += await asyncio.gather(*(work(subject) for subject in subjects[start : start + _AT_A_TIME]))
    return done


async def _watch(watcher: Watcher, change_feed: RunChangeFeed, run_ids: Sequence[int], screen: ProgressOutput) -> None:
    """Update the screen after each change of the runs, and at its refresh interval, until all runs have ended.

    Does not wait for runs that need a retry to end.
    """
    async with change_feed.watch(run_ids) as watch:
        while True:
            view = await watcher.read_view(run_ids)
            screen.show(view)
            if view.is_over or view.is_stuck:
                return
            await watch.news(within_s=screen.refresh_after_s)
            await watcher.pause()
