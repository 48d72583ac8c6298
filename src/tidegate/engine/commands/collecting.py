"""Runs the collection of a command: plan, start or resume runs, show progress, stop at the end or on a signal.

The plan is made from stored runs and cursors and from the allowances of credentials.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import TypeVar

import msgspec

from tidegate.cli.stopping import work_until_over
from tidegate.core.clock import milliseconds
from tidegate.core.errors import TidegateError
from tidegate.engine.change_feed import RunChangeFeed
from tidegate.engine.commands.permits import permits_of, supplies
from tidegate.engine.commands.plan import CollectionPlan, UserHistory, assemble_plan, forecast_plan, plan_user
from tidegate.engine.commands.screens import ProgressOutput
from tidegate.engine.commands.watching import View, Watcher
from tidegate.engine.credentials import Credential, CredentialKind
from tidegate.engine.credentials.authority import BucketReport
from tidegate.engine.reports import history
from tidegate.engine.reports.history import ReadResources
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import SourceCell
from tidegate.engine.source_plugin import SourcePlugin
from tidegate.engine.upstream import UpstreamClient, UpstreamSettings
from tidegate.primitives.gate import BucketStatus, CredentialStatus, PoolStatus
from tidegate.storage.sql import Transaction

_MOST_POOLS = 20
_MOST_ASKED = 8
_PATIENCE = timedelta(seconds=5)


async def make_plan(cell: SourceCell, subjects: Sequence[Subject], pools: Mapping[str, str]) -> CollectionPlan:
    """Plan the collection of these subjects; `pools` names the pool for each user id."""
    parts, plugin, source = cell.parts, cell.plugin, cell.source
    known = await parts.database.read(_known, plugin, subjects)
    statuses = await _statuses(cell, list(dict.fromkeys(pools.values()))[:_MOST_POOLS])
    now = parts.database.clock.now()
    users = [
        plan_user(
            subject,
            pools[subject.user_id],
            known,
            include=plugin.kinds_of(subject),
            first_jobs=len(source.first_jobs(subject)),
            credentials=_names(statuses.get(pools[subject.user_id])),
        )
        for subject in subjects
    ]
    names = await labels(cell)
    end = forecast_plan(
        users, {pool: supplies(status, "core", parts.settings.gate) for pool, status in statuses.items()}
    )
    permits = [one for status in statuses.values() for one in permits_of(status, names, now)]
    return assemble_plan(users, known, permits, end, now, unit=plugin.unit)


async def labels(cell: SourceCell) -> dict[str, str]:
    """Display names of the credentials, by allowance."""
    return {one.allowance: _label(one) for one in (await cell.stored.list() if cell.stored is not None else ())}


def _label(one: Credential) -> str:
    return f"app of {one.owner}" if one.kind is CredentialKind.INSTALLATION else f"token of {one.account}"


def _known(tx: Transaction, plugin: SourcePlugin, subjects: Sequence[Subject]) -> UserHistory:
    user_ids = [subject.user_id for subject in subjects]
    return UserHistory(
        active=history.active_runs(tx, plugin.name, user_ids),
        last=history.last_completed(tx, plugin.name, user_ids),
        marks=history.marks_of(tx, plugin.name, user_ids) | _marks_under_owners(tx, plugin, subjects),
        resources=_resources(tx, plugin, subjects),
        typical=history.typical(tx, plugin.name),
    )


def _resources(tx: Transaction, plugin: SourcePlugin, subjects: Sequence[Subject]) -> dict[str, int]:
    """What the source counts beside subjects, such as repositories, as far as earlier runs have read them."""
    if plugin.unit is None:
        return {}
    owners = {
        subject.user_id: plugin.owner_of(subject) or subject.user_id
        for subject in subjects
        if plugin.resource_of(subject) is None
    }
    found = history.known_resources(
        tx, plugin.name, list(owners.values()), plugin.unit.prefix, besides=plugin.source.planning_kinds
    )
    return {user_id: found[owner] for user_id, owner in owners.items() if owner in found}


def _marks_under_owners(
    tx: Transaction, plugin: SourcePlugin, subjects: Sequence[Subject]
) -> dict[str, list[ReadResources]]:
    """The cursors of subjects that are stored under another user, such as the owner of a repository."""
    marks: dict[str, list[ReadResources]] = {}
    for subject in subjects:
        owner, resource = plugin.owner_of(subject), plugin.resource_of(subject)
        if owner is not None and owner != subject.user_id:
            found = history.marks_of(tx, plugin.name, [owner], resource)
            marks |= {subject.user_id: found[owner]} if found else {}
    return marks


def _names(status: PoolStatus | None) -> frozenset[str]:
    return frozenset(one.name for one in status.credentials) if status is not None else frozenset()


async def _statuses(cell: SourceCell, pools: Sequence[str]) -> dict[str, PoolStatus]:
    """The status of the pools.

    The upstream is asked about a few credentials that were never used; these requests do not count. Blocked
    credentials are not asked about, because the upstream expects no requests from them.
    """
    gate, settings = cell.parts.gate, cell.parts.settings
    found = {pool: await gate.status(pool) for pool in pools}
    members = [one for status in found.values() for one in status.credentials]
    fresh = [one.name for one in members if not one.buckets and not one.blocked_in_ms][:_MOST_ASKED]
    if not fresh:
        return found
    short_timeouts = settings.section(UpstreamSettings).model_copy(
        update={"read_timeout": _PATIENCE, "connect_timeout": _PATIENCE}
    )
    seen = await _ask(cell, fresh, short_timeouts)
    now = cell.parts.database.clock.now()
    return {
        pool: msgspec.structs.replace(
            status, credentials=[_informed(one, seen.get(one.name), now) for one in status.credentials]
        )
        for pool, status in found.items()
    }


async def _ask(
    cell: SourceCell, credentials: Sequence[str], short_timeouts: UpstreamSettings
) -> dict[str, Mapping[str, BucketReport]]:
    """The remaining calls by credential and bucket. Errors are ignored, because the first job meets them again."""
    seen: dict[str, Mapping[str, BucketReport]] = {}
    async with UpstreamClient(short_timeouts) as client:
        authority = cell.plugin.authority(client)
        for name in credentials:
            try:
                secret = await cell.credentials.secret_of(name)
                seen[name] = (await authority.check(secret, identify=False)).left
            except TidegateError:
                continue
    return seen


def _informed(one: CredentialStatus, seen: Mapping[str, BucketReport] | None, now: datetime) -> CredentialStatus:
    core = None if seen is None else seen.get("core")
    if core is None:
        return one
    bucket = BucketStatus(
        name="core",
        held=0,
        lost=0,
        calls_now=0,
        limit=core.limit,
        remaining=core.remaining,
        resets_in_ms=max(0, milliseconds(core.resets_at - now)),
    )
    return msgspec.structs.replace(one, buckets=[bucket])


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
    await cell.credentials.register()  # the leader does it too, but may be a process without the token of this one
    served = await _each(subjects, lambda subject: cell.credentials.pool_for(subject.user_id))
    pools = {subject.user_id: pool for subject, pool in zip(subjects, served, strict=True)}
    plan = await make_plan(cell, subjects, pools)
    screen.show_plan(plan)
    run_ids = await _each(subjects, lambda subject: cell.begin_or_resume(subject, pool=pools[subject.user_id]))
    parts = cell.parts
    watcher = Watcher(
        parts.database,
        parts.gate,
        parts.settings.gate,
        lambda: labels(cell),
        cell.plugin.bucket_of,
        unit=cell.plugin.unit,
        planning_kinds=cell.source.planning_kinds,
    )
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
            await watch.wait(within_s=screen.refresh_after_s)
            await watcher.pause(watch, run_ids)
