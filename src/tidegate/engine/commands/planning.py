"""Gathers what a plan is made of: what SQL knows of users, and what the credentials may still do."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from tidegate.app import Collection
from tidegate.core.clock import milliseconds
from tidegate.core.errors import TidegateError
from tidegate.engine.commands.permits import permits_of, supplies
from tidegate.engine.commands.plan import Known, Plan, foresee, plan_user, put_together
from tidegate.engine.credentials import Credential, Kind
from tidegate.engine.credentials.authority import Seen
from tidegate.engine.reports import history
from tidegate.engine.reports.history import Marks
from tidegate.engine.source import Subject
from tidegate.engine.upstream import UpstreamClient, UpstreamSettings
from tidegate.primitives.gate import BucketStatus, CredentialStatus, PoolStatus
from tidegate.storage.sql import Transaction
from tidegate.systems.github import GithubSource
from tidegate.systems.github.authority import GithubAuthority
from tidegate.systems.github.settings import GithubSettings
from tidegate.systems.github.subjects import SubjectKind, parse_subject

_MOST_POOLS = 20
_MOST_ASKED = 8
_PATIENCE = timedelta(seconds=5)


async def make_plan(collection: Collection, subjects: Sequence[Subject], pools: Mapping[str, str]) -> Plan:
    """What is going to happen if these are collected now, each by the pool that `pools` has for the user."""
    parts = collection.parts
    known = await parts.database.read(_known, subjects)
    statuses = await _statuses(collection, list(dict.fromkeys(pools.values()))[:_MOST_POOLS])
    now = parts.database.clock.now()
    source = GithubSource(parts.settings.section(GithubSettings).api_url, parts.settings.section(GithubSettings).kinds)
    users = [
        plan_user(
            subject,
            pools[subject.user_id],
            known,
            include=source.included(subject),
            first_jobs=len(source.first_jobs(subject)),
            credentials=_names(statuses.get(pools[subject.user_id])),
        )
        for subject in subjects
    ]
    names = await labels(collection)
    end = foresee(users, {pool: supplies(status, "core", parts.settings.gate) for pool, status in statuses.items()})
    permits = [one for status in statuses.values() for one in permits_of(status, names, now)]
    return put_together(users, known, permits, end, now)


async def labels(collection: Collection) -> dict[str, str]:
    """What people call the credentials that the gate knows by names of its own."""
    return {one.allowance: _label(one) for one in await collection.credentials.list()}


def _label(one: Credential) -> str:
    return f"app of {one.owner}" if one.kind is Kind.INSTALLATION else f"token of {one.account}"


def _known(tx: Transaction, subjects: Sequence[Subject]) -> Known:
    user_ids = [subject.user_id for subject in subjects]
    return Known(
        active=history.active_runs(tx, GithubSource.name, user_ids),
        last=history.last_completed(tx, GithubSource.name, user_ids),
        marks=history.marks_of(tx, GithubSource.name, user_ids) | _marks_under_accounts(tx, subjects),
        typical=history.typical(tx, GithubSource.name),
    )


def _marks_under_accounts(tx: Transaction, subjects: Sequence[Subject]) -> dict[str, list[Marks]]:
    """What is known of organizations and repositories: their cursors are those of the accounts that own them."""
    marks: dict[str, list[Marks]] = {}
    for subject in subjects:
        wanted = parse_subject(subject.login)
        if wanted.account is not None and wanted.kind is not SubjectKind.USER:
            resource = wanted.id if wanted.kind is SubjectKind.REPOSITORY else None
            found = history.marks_of(tx, GithubSource.name, [wanted.account], resource)
            marks |= {subject.user_id: found[wanted.account]} if found else {}
    return marks


def _names(status: PoolStatus | None) -> frozenset[str]:
    return frozenset(one.name for one in status.credentials) if status is not None else frozenset()


async def _statuses(collection: Collection, pools: Sequence[str]) -> dict[str, PoolStatus]:
    """How the pools stand. Credentials that were never used are asked about, which is free; a few of them at most.

    One that the upstream asked for a pause asks for nothing, however free.
    """
    gate, settings = collection.parts.gate, collection.parts.settings
    found = {pool: await gate.status(pool) for pool in pools}
    members = [one for status in found.values() for one in status.credentials]
    fresh = [one.name for one in members if not one.buckets and not one.blocked_in_ms][:_MOST_ASKED]
    if not fresh:
        return found
    patience = settings.section(UpstreamSettings).model_copy(
        update={"read_timeout": _PATIENCE, "connect_timeout": _PATIENCE}
    )
    seen = await _ask(collection, fresh, patience)
    now = collection.parts.database.clock.now()
    return {
        pool: msgspec.structs.replace(
            status, credentials=[_informed(one, seen.get(one.name), now) for one in status.credentials]
        )
        for pool, status in found.items()
    }


async def _ask(
    collection: Collection, credentials: Sequence[str], patience: UpstreamSettings
) -> dict[str, Mapping[str, Seen]]:
    """What is left, by credential and bucket. Whatever goes wrong here is found out again by the first job."""
    seen: dict[str, Mapping[str, Seen]] = {}
    async with UpstreamClient(patience) as client:
        authority = GithubAuthority(client, collection.parts.settings.section(GithubSettings).api_url)
        for name in credentials:
            try:
                secret = await collection.credentials.secret_of(name)
                seen[name] = (await authority.check(secret, identify=False)).left
            except TidegateError:
                continue
    return seen


def _informed(one: CredentialStatus, seen: Mapping[str, Seen] | None, now: datetime) -> CredentialStatus:
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
