"""Makes the plan of a collection from stored runs and cursors and from the allowances of credentials."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from tidegate.core.clock import milliseconds
from tidegate.core.errors import TidegateError
from tidegate.engine.commands.permits import permits_of, supplies
from tidegate.engine.commands.plan import CollectionPlan, UserHistory, assemble_plan, forecast_plan, plan_user
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
    return assemble_plan(users, known, permits, end, now)


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
        typical=history.typical(tx, plugin.name),
    )


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
    patience = settings.section(UpstreamSettings).model_copy(
        update={"read_timeout": _PATIENCE, "connect_timeout": _PATIENCE}
    )
    seen = await _ask(cell, fresh, patience)
    now = cell.parts.database.clock.now()
    return {
        pool: msgspec.structs.replace(
            status, credentials=[_informed(one, seen.get(one.name), now) for one in status.credentials]
        )
        for pool, status in found.items()
    }


async def _ask(
    cell: SourceCell, credentials: Sequence[str], patience: UpstreamSettings
) -> dict[str, Mapping[str, BucketReport]]:
    """The remaining calls by credential and bucket. Errors are ignored, because the first job meets them again."""
    seen: dict[str, Mapping[str, BucketReport]] = {}
    async with UpstreamClient(patience) as client:
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
