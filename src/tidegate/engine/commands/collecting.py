"""Collecting, as a command does it: plan, begin or resume, watch, and stop when it is over or when told to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

import msgspec

from tidegate.app import Collection
from tidegate.cli.stopping import work_until_over
from tidegate.engine.change_feed import ChangeFeed
from tidegate.engine.commands.plan import Plan
from tidegate.engine.commands.planning import labels, make_plan
from tidegate.engine.commands.screens import Screen
from tidegate.engine.commands.watching import View, Watcher
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.runs import RunActive
from tidegate.engine.source import Subject
from tidegate.systems.github import GithubSource

T = TypeVar("T")

_AT_A_TIME = 50


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended."""

    plan: Plan
    view: View
    seconds: float
    was_interrupted: bool


async def collect_all(collection: Collection, subjects: Sequence[Subject], screen: Screen) -> Outcome:
    """Collect all subjects with this process's workers, and with those of others that work here too."""
    began = monotonic()
    await collection.credentials.enrol()  # the leader, who does it too, may be a process without our token
    served = await _each(subjects, lambda subject: collection.credentials.pool_for(subject.user_id))
    pools = {subject.user_id: pool for subject, pool in zip(subjects, served, strict=True)}
    plan = await make_plan(collection, subjects, pools)
    screen.show_plan(plan)
    run_ids = await _each(subjects, lambda subject: _begin(collection, subject, pools[subject.user_id]))
    watcher = Watcher(
        collection.parts.database, collection.parts.gate, collection.parts.settings.gate, lambda: labels(collection)
    )
    watch = _watch(watcher, collection.bulletin, run_ids, screen)
    was_interrupted = await work_until_over(collection.process(), watch, screen.say)
    return Outcome(
        plan=plan,
        view=await watcher.look(run_ids),
        seconds=monotonic() - began,
        was_interrupted=was_interrupted,
    )


async def _each(subjects: Sequence[Subject], work: Callable[[Subject], Awaitable[T]]) -> list[T]:
    """Do something for all of them, some at a time."""
    done: list[T] = []
    for start in range(0, len(subjects), _AT_A_TIME):
        done += await asyncio.gather(*(work(subject) for subject in subjects[start : start + _AT_A_TIME]))
    return done


async def _begin(collection: Collection, subject: Subject, pool: str) -> int:
    """A new run, or the one that is still active; its jobs are offered, since whoever began it may have died before."""
    try:
        return await collection.orchestrator.begin(GithubSource.name, subject, pool=pool)
    except RunActive as active:
        await Recovery(collection.parts.database, collection.parts.gate).offer_run(active.run_id)
        return active.run_id


async def _watch(watcher: Watcher, bulletin: ChangeFeed, run_ids: Sequence[int], screen: Screen) -> None:
    """Show how the runs stand, whenever one of them moved or the screen's clock has to, until they are over.

    Those that nobody ends before somebody retries them are not waited for.
    """
    async with bulletin.watch(run_ids) as watch:
        while True:
            view = await watcher.look(run_ids)
            screen.show(view)
            if view.is_over or view.is_stuck:
                return
            await watch.news(within_s=screen.patience_s)
            await watcher.pause()
